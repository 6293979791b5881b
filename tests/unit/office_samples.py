"""Office files for the tests of their parsers, and ways to bend their parts."""

import io
import zipfile
from collections.abc import Callable, Mapping
from typing import Protocol

Change = Callable[[bytes], bytes]


class Saved(Protocol):
    """A document of python-docx or a workbook of openpyxl."""

    def save(self, target: io.BytesIO) -> None: ...


def saved(document: Saved) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def changed(content: bytes, changes: Mapping[str, Change], added: Mapping[str, bytes] | None = None) -> bytes:
    """The package with parts changed and added."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as package,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in package.namelist():
            part = package.read(name)
            target.writestr(name, changes[name](part) if name in changes else part)
        for name, part in (added or {}).items():
            target.writestr(name, part)
    return out.getvalue()


def replaced(old: str, new: str) -> Change:
    def change(part: bytes) -> bytes:
        assert old.encode() in part
        return part.replace(old.encode(), new.encode())

    return change


def lying_about_size(content: bytes, name: str, size: int) -> bytes:
    """The package whose listing says another unpacked size of a part."""
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        real = package.getinfo(name).file_size.to_bytes(4, "little")
    place = content.rindex(name.encode()) - 46
    assert content[place + 24 : place + 28] == real
    return content[: place + 24] + size.to_bytes(4, "little") + content[place + 28 :]


def encrypted() -> bytes:
    """As Office saves under a password: a compound file that lists the encrypted package."""
    return (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504) + "EncryptedPackage".encode("utf-16-le") + bytes(480)
    )
