"""A real nginx with the shipped files; only addresses, paths and what a test changes are other ones."""

import contextlib
import datetime
import random
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.harness.missing import program
from tests.harness.process import eventually, refused

INSTALL = "apt-get install nginx-light"
SHIPPED = Path(__file__).parents[2] / "nginx"
PLAIN, TLS = "qa-gateway.conf", "qa-gateway-tls.conf"

#: what a test changes in the text of all files
Change = Callable[[str], str]

_ATTEMPTS = 5
_PORTS = range(10_000, 32_000)
#: ends the server, its workers too, when its standard input is closed: however the test process ends
_WATCHED = '"$@" </dev/null & server=$!; read -r word; kill -TERM $server; wait $server'


class Certificate(NamedTuple):
    """PEM, both."""

    chain: bytes
    key: bytes


def self_signed() -> Certificate:
    """For ``localhost``, good for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - day, now + day
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    return Certificate(
        made.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )


class Nginx:
    """A running one. ``log`` is what it has said: its messages, and a line of JSON a request."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self.port = port

    @property
    def pid(self) -> int:
        return int((self._folder / "nginx.pid").read_text())

    @property
    def log(self) -> str:
        return (self._folder / "output.txt").read_text()


@asynccontextmanager
async def nginx(
    *gateways: int,
    variant: str = PLAIN,
    port: int | None = None,
    unlimited: bool = False,
    change: Change = str,
    certificate: Certificate | None = None,
) -> AsyncIterator[Nginx]:
    """One in front of these ports, the two of the configuration or any number; in the end it is gone.

    ``unlimited`` lets loopback ask as often as it likes.
    """
    with _folder() as folder:
        for attempt in range(_ATTEMPTS):
            chosen = port or free_port()
            render(folder, gateways, chosen, variant, unlimited=unlimited, change=change)
            write_certificate(folder, certificate)
            watch = _start(folder)
            try:
                if await _answers(watch, chosen) or port or attempt == _ATTEMPTS - 1:
                    assert watch.poll() is None, (folder / "output.txt").read_text()
                    yield Nginx(folder, chosen)
                    return
            finally:
                watch.communicate()


def configuration_errors(folder: Path, variant: str) -> str:
    """What ``nginx -t`` says of the shipped files with this machine's addresses; empty when they are good."""
    render(folder, (1, 2), free_port(), variant)
    write_certificate(folder, self_signed())
    done = subprocess.run([*_command(folder), "-t"], capture_output=True, text=True)
    said = done.stderr.splitlines()
    return "\n".join(line for line in said if "syntax is ok" not in line and "is successful" not in line)


def render(
    folder: Path,
    gateways: Sequence[int],
    port: int,
    variant: str,
    *,
    unlimited: bool = False,
    change: Change = str,
) -> None:
    """The files as they lie in ``/etc/nginx``, below the folder."""
    for source in (SHIPPED / "nginx.conf", SHIPPED / variant, *(SHIPPED / "qa-gateway").glob("*.conf")):
        place = folder / source.relative_to(SHIPPED)
        place.parent.mkdir(exist_ok=True)
        text = change(source.read_text())
        text = re.sub(r"/tmp/(nginx\b)", rf"{folder}/\1", text)
        text = re.sub(r"/dev/std(?:err|out)", str(folder / "output.txt"), text)
        text = text.replace("/etc/ssl/qa-gateway/", f"{folder}/").replace(
            f"include {PLAIN};", f"include {variant};"
        )
        text = re.sub(r"listen (?:8080|8443)", f"listen 127.0.0.1:{port}", text)
        if source.name == "upstreams.conf":
            text = _with_gateways(text, gateways)
        if unlimited and source.name == "zones.conf":
            text = text.replace("default 0;", "default 0;\n    127.0.0.1 1;")
        place.write_text(text)


def _with_gateways(text: str, ports: Sequence[int]) -> str:
    """The lines of the first shipped gateway, once for each port, and none of the second."""
    lines = [line for line in text.splitlines(keepends=True) if "server gateway-2" not in line]
    return "".join(
        line.replace("gateway-1:8080", f"127.0.0.1:{port}")
        for line in lines
        for port in (ports if "server gateway-1" in line else ports[:1])
    )


def write_certificate(folder: Path, certificate: Certificate | None) -> None:
    if certificate is not None:
        (folder / "tls.crt").write_bytes(certificate.chain)
        (folder / "tls.key").write_bytes(certificate.key)


def _command(folder: Path) -> list[str]:
    return [program("nginx", INSTALL, "/usr/sbin"), "-p", str(folder), "-c", "nginx.conf"]


def _start(folder: Path) -> "subprocess.Popen[bytes]":
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            ["/bin/sh", "-c", _WATCHED, "watched", *_command(folder), "-g", "daemon off;"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,  # the terminal's Ctrl-C is for the tests
        )


async def _answers(watch: "subprocess.Popen[bytes]", port: int) -> bool:
    """Whether it listens; False when it ended instead."""

    async def listening_or_over() -> bool:
        return watch.poll() is not None or not await refused(port)

    await eventually(listening_or_over)
    return watch.poll() is None


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """One that nginx' workers can reach: they aren't root, and pytest's are closed to everybody else."""
    folder = Path(tempfile.mkdtemp(prefix="gateway-nginx-"))
    try:
        folder.chmod(0o755)
        (folder / "output.txt").touch()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """One that nobody listens on, and that isn't given to an outgoing connection while nobody does."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
