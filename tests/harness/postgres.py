"""A real PostgreSQL server on a free port, with cheap new databases, to pause, stop and start again."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.harness.missing import program

#: programs of Debian's packages, which aren't on PATH; the newest version first
_FOLDERS = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
_INSTALL = "apt-get install postgresql"
_OWNER = "owner"
_TEMPLATE = "migrated"
_START_S = 60.0
_LOOK_S = 0.01
_PLENTY = 4 << 30
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum": "off",  # it would hold up dropping and copying databases
    "log_min_messages": "warning",
}
#: ends the server when its standard input is closed: however the test process ends, the server does, and
#: its files go too unless a word was said before
_WATCHED = (
    '"$@" </dev/null & server=$!; read -r word; kill -QUIT $server; wait $server; '
    '[ -n "$word" ] || rm -rf "$PWD"'
)


@contextlib.contextmanager
def postgres_server(folder: Path) -> "Iterator[PostgresServer]":
    """A server of its own, gone afterwards; skips or fails the test when PostgreSQL isn't installed."""
    initdb = program("initdb", _INSTALL, *_FOLDERS)
    with _private_folder(folder) as home:
        arguments = ["-D", str(home / "data"), "-U", _OWNER, "-E", "UTF8", "--locale=C.UTF-8"]
        arguments += ["--auth=trust", "--no-sync", "--no-instructions"]
        subprocess.run([initdb, *arguments], check=True, capture_output=True, cwd=home, user=_account())
        with contextlib.closing(PostgresServer(home)) as server:
            server.start()
            yield server


def _account() -> str | None:
    """Who runs the server, when it can't be us: it refuses to be root's."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextlib.contextmanager
def _private_folder(folder: Path) -> Iterator[Path]:
    """One that the server's account can reach: pytest's are closed to everybody else."""
    account = _account()
    if account is None:
        yield folder
        return
    home = Path(tempfile.mkdtemp(prefix="gateway-postgres-", dir=_fast_folder()))
    try:
        shutil.chown(home, account)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _fast_folder() -> str | None:
    """Memory, where there is plenty of it: making databases is mostly copying files."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > _PLENTY else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """Started and stopped by blocking calls of a fraction of a second. ``url`` is its owner's."""

    def __init__(self, home: Path) -> None:
        self._data = home / "data"
        self._postgres = program("postgres", _INSTALL, *_FOLDERS)
        self._psql = str(
            Path(self._postgres).resolve().with_name("psql")
        )  # the one on PATH is a slow wrapper
        self._watch: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._has_template = False
        self.port = _free_port()
        self.url = self.url_of("postgres")

    def url_of(self, database: str, account: str = _OWNER) -> str:
        """SQLAlchemy's form."""
        return f"postgresql+asyncpg://{account}:a-password@127.0.0.1:{self.port}/{database}"

    def fresh(self) -> str:
        """The URL of a new, empty database."""
        return self._new("template0")

    def migrated(self) -> str:
        """The URL of a new database that has the newest schema and nothing in it."""
        if not self._has_template:
            from gateway.adapters.sql.migrations import migrate

            self.sql(f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0")
            migrate(self.url_of(_TEMPLATE))
            self._has_template = True
        return self._new(_TEMPLATE)

    def _new(self, template: str) -> str:
        self._databases += 1
        name = f"catalog_{self._databases}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url_of(name)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Runs SQL as the owner of everything; the rows as lines, their columns between ``|``."""
        target = f"host=127.0.0.1 port={self.port} user={_OWNER} dbname={database}"
        command = [self._psql, "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", target, "-c", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def terminate_backends(self) -> None:
        """Cuts every connection of every client, whatever it is doing."""
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )

    def pause(self) -> None:
        """The server hangs: it accepts connections, as the kernel does for it, and says nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """To the server and to all of its processes."""
        server = self._server()
        for process in (server, *server.children()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        """At once: clients are cut off in mid-request and open transactions are lost."""
        if self._watch is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            self.resume()
        watch, self._watch = self._watch, None
        watch.communicate(b"stop\n")
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    close = stop

    def start(self) -> None:
        """On the same port, with what was committed. Returns when it accepts connections."""
        settings = {**_SETTINGS, "port": str(self.port)}
        command = [self._postgres, "-D", str(self._data), *(f"--{k}={v}" for k, v in settings.items())]
        with (self._data.parent / "log").open("ab") as log:
            self._watch = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "watched", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._data.parent,
                start_new_session=True,  # the terminal's Ctrl-C is for the tests
                user=_account(),
            )
        self._await_ready()

    def _await_ready(self) -> None:
        """The server writes its state into its pid file."""
        last = time.monotonic() + _START_S
        while self._state() != "ready":
            if time.monotonic() > last or not self._is_running():
                raise RuntimeError((self._data.parent / "log").read_text()[-2000:])
            time.sleep(_LOOK_S)

    def _state(self) -> str:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()[7].strip()
        except (FileNotFoundError, IndexError):
            return ""

    def _is_running(self) -> bool:
        return self._watch is not None and self._watch.poll() is None

    def _server(self) -> psutil.Process:
        return psutil.Process(int((self._data / "postmaster.pid").read_text().splitlines()[0]))
