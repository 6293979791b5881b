"""A real Milvus server for tests: the program of the PyPI package ``milvus``, small, quiet and on free ports.

The package's own launcher unpacks 250 MB for each data folder, picks ports by itself and ends only when
asked in one particular way; so the program is run here without it, from one unpacked copy.
"""

import fcntl
import os
import random
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Event

from tests.harness.missing import part_missing, program

_PATIENCE_S = 120.0
_LOOK_S = 0.05
# below the range that outgoing connections are given ports from: a stopped server's ports stay free
_PORTS = range(10_000, 32_000)
_PORT_KEYS = (
    "proxy_port",
    "proxy_internal_port",
    "root_coord_port",
    "query_coord_port",
    "query_node_port",
    "index_coord_port",
    "index_node_port",
    "data_coord_port",
    "data_node_port",
    "etcd_port",
)
_SMALL: dict[str, object] = {
    **{f"{part}.ip": "127.0.0.1" for part in ("rootCoord", "proxy", "queryCoord", "queryNode")},
    **{f"{part}.ip": "127.0.0.1" for part in ("indexNode", "dataCoord", "dataNode")},
    "log.level": "error",
    "etcd.log.level": "error",
    "rootCoord.dmlChannelNum": 4,
    "rocksmq.lrucacheratio": 0.01,
    "queryCoord.checkInterval": 200,
    "queryCoord.distPullInterval": 200,
    "quotaAndLimits.enabled": "false",
    "common.session.ttl": 10,  # a killed one is missed for as long after it is back; a paused one gives up
    "common.gracefulStopTimeout": 5,
}


class MilvusServer:
    """One server process. ``stop`` and ``start`` keep its address and its data."""

    def __init__(self, folder: Path, *, authorization: bool = False) -> None:
        self._folder = folder
        self._authorization = authorization
        self._binaries = _unpacked()
        self._ports = _free_ports(len(_PORT_KEYS) + 2)
        self._process: subprocess.Popen[bytes] | None = None
        self.uri = f"http://127.0.0.1:{self._ports[0]}"

    @property
    def pid(self) -> int:
        """Of the running server; raises AssertionError when it is stopped."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when the server answers."""
        assert self._process is None
        _write_config(self._folder, self._ports, self._authorization)
        setpriv = program("setpriv", "apt-get install util-linux")
        with (self._folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                # dies with the test process, also when that is killed
                [setpriv, "--pdeathsig", "KILL", str(self._binaries / "milvus"), "run", "standalone"],
                cwd=self._folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kills it with everything it started: asked politely it takes ten seconds. What it acked stays."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        """The same server on the same address."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """It stays connected and answers nothing."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LD_LIBRARY_PATH": str(self._binaries),
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(self._ports[-1]),
            "MILVUS_RUN_DIR": str(self._folder / "run"),
            "GOMAXPROCS": "2",
        }

    def _wait_until_healthy(self) -> None:
        assert self._process is not None
        pause = Event()
        for _ in range(int(_PATIENCE_S / _LOOK_S)):
            assert self._process.poll() is None, (self._folder / "output.txt").read_text()[-2000:]
            with suppress(urllib.error.URLError, OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[-1]}/healthz", timeout=5) as said:
                    if b"OK" in said.read():
                        return
            pause.wait(_LOOK_S)
        raise TimeoutError("the Milvus server doesn't become healthy")


#: those of this process
_running: list[MilvusServer] = []


def rest() -> None:
    """Ends the servers that still run here: idle ones take a core's twentieth each."""
    for server in _running:
        server.stop()


@contextmanager
def milvus_server(folder: Path, *, authorization: bool = False) -> Iterator[MilvusServer]:
    """A running server with its data in ``folder``; gone in the end. Its ``root`` has password ``Milvus``."""
    server = MilvusServer(folder, authorization=authorization)
    server.start()
    _running.append(server)
    try:
        yield server
    finally:
        _running.remove(server)
        server.stop()


def _free_ports(count: int) -> Sequence[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            with suppress(OSError):
                probe.bind(("", port))
                found.append(port)
    return found


def _unpacked() -> Path:
    """The folder of the server's program, unpacked once a machine and user."""
    if find_spec("milvus") is None:
        part_missing("the Milvus server", "pip install milvus==2.3.5 (Linux, x86_64)")
    milvus = import_module("milvus")  # ships no types
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "qa-gateway-tests" / f"milvus-{milvus.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        milvus._initialize_data_files(str(folder))  # nothing to do where it was done before
    return folder / "bin"


def _write_config(folder: Path, ports: Sequence[int], authorization: bool) -> None:
    """``configs/milvus.yaml``, and etcd's own file: its peer port is in nobody else's."""
    milvus = import_module("milvus")
    *named, peer, _ = ports
    configs = folder / "configs"
    configs.mkdir(parents=True, exist_ok=True)
    config = milvus.MilvusServerConfig(data_dir=str(folder))
    config.resolve_storage()
    for key, port in zip(_PORT_KEYS, named, strict=True):
        config.set(key, port)
    config.set("authorization_enabled", authorization)
    for key, value in _SMALL.items():
        config.set(key, value)
    config.write_config()
    written = configs / "milvus.yaml"
    etcd = configs / "etcd.yaml"
    written.write_text(written.read_text().replace("etcd:\n", f"etcd:\n  config:\n    path: {etcd}\n", 1))
    client_url, peer_url = f"http://127.0.0.1:{named[-1]}", f"http://127.0.0.1:{peer}"
    etcd.write_text(
        "name: default\n"
        f"listen-client-urls: {client_url}\n"
        f"advertise-client-urls: {client_url}\n"
        f"listen-peer-urls: {peer_url}\n"
        f"initial-advertise-peer-urls: {peer_url}\n"
        f"initial-cluster: default={peer_url}\n"
        "log-level: error\n"
        "unsafe-no-fsync: true\n"
    )
