"""Archive: the ZIP file that an Office document is, unless it is built to do harm, and its XML parts.

Everything is unpacked once here, in slices, before anything else sees the file: what a ZIP file says
about its sizes needn't be true.
"""

import posixpath
import zipfile
import zlib
from io import BytesIO
from typing import IO, Never
from xml.etree import ElementTree

from gateway.errors import DocumentRejected

COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # the container of old and of encrypted Office files

_ENTRIES = 10_000
_INFLATED_BYTES = 400 * 1024 * 1024
#: XML shrinks to a tenth, seldom to a fiftieth; only files above _SMALL_BYTES are judged by it
_RATIO = 200
_SMALL_BYTES = 16 * 1024 * 1024
#: a tree takes some ten times its XML
_TREE_BYTES = 64 * 1024 * 1024
_SLICE_BYTES = 256 * 1024
_ENCRYPTED_STREAM = "EncryptedPackage".encode("utf-16-le")
_ENCRYPTED_FLAG = 0x1
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError)


class OfficePackage:
    """The parts of a .docx or .xlsx file, found whole. Tags and attributes have no namespaces."""

    def __init__(self, content: bytes) -> None:
        """Raises DocumentRejected encrypted, unsupported_type, corrupt or bomb."""
        if content.startswith(COMPOUND_FILE):
            raise _compound(content)
        try:
            self._zip = zipfile.ZipFile(BytesIO(content))
            _check_sizes(self._zip, len(content))
            for entry in self._zip.infolist():
                _unpack(self._zip, entry)
        except _DAMAGED:
            raise DocumentRejected(
                "corrupt", "The file is damaged: its ZIP archive can't be unpacked."
            ) from None
        self._names = frozenset(self._zip.namelist())

    def main_part(self) -> str:
        """The name of the part that the document begins with. Raises DocumentRejected corrupt."""
        name = self.related("").get("officeDocument", "")
        if name not in self._names:
            raise DocumentRejected(
                "corrupt", "The file is a ZIP archive, but not a complete Office document."
            )
        return name

    def related(self, part: str) -> dict[str, str]:
        """Names of the parts that ``part`` refers to, by the last word of the relation's type."""
        return {kind: target for _, kind, target in self.relations(part)}

    def relations(self, part: str) -> list[tuple[str, str, str]]:
        """(id, the type's last word, name of the part) of what ``part`` refers to inside the package."""
        folder, name = posixpath.split(part)
        listing = self.xml(posixpath.join(folder, "_rels", f"{name}.rels"))
        found = []
        for relation in listing if listing is not None else ():
            if relation.get("TargetMode") == "External":
                continue
            target = posixpath.normpath(posixpath.join("/", folder, relation.get("Target", "")))
            kind = relation.get("Type", "").rpartition("/")[2]
            found.append((relation.get("Id", ""), kind, target.lstrip("/")))
        return found

    def open(self, name: str) -> IO[bytes]:
        """A part as a stream. Raises DocumentRejected corrupt when there is none of this name."""
        if name not in self._names:
            raise DocumentRejected("corrupt", "The file is damaged: a part of it is missing.")
        return self._zip.open(name)

    def xml(self, name: str) -> ElementTree.Element | None:
        """A part's root; None when there is no such part.

        Raises DocumentRejected corrupt, too_complex, or bomb (see ``refuse_declarations``).
        """
        if name not in self._names:
            return None
        entry = self._zip.getinfo(name)
        if entry.file_size > _TREE_BYTES:
            raise DocumentRejected(
                "too_complex", f"A part of the document has {entry.file_size:,} bytes of XML."
            )
        try:
            parser = ElementTree.XMLParser(target=_Tree())  # noqa: S314 - no entity gets declared
            root = ElementTree.fromstring(self._zip.read(entry), parser)  # noqa: S314 - as above
        except (ElementTree.ParseError, LookupError, ValueError):
            raise DocumentRejected("corrupt", "The file is damaged: a part of it is no valid XML.") from None
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
            if element.attrib:
                named = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
                element.attrib = named
        return root


class _Tree(ElementTree.TreeBuilder):
    """Elements only."""

    def doctype(self, *_declared: str | None) -> None:
        refuse_declarations()


def refuse_declarations(*_declared: object) -> Never:
    """Expat's handler for the start of a document type declaration, the only place where entities can be
    declared: a part is judged where it is read, whatever its name says of it. Raises DocumentRejected bomb.
    """
    raise DocumentRejected("bomb", "The file declares XML entities, which Office documents never do.")


def is_encrypted_office(content: bytes) -> bool:
    """Whether this is a .docx or .xlsx under a password: a compound file around the encrypted package."""
    return content.startswith(COMPOUND_FILE) and _ENCRYPTED_STREAM in content


def _compound(content: bytes) -> DocumentRejected:
    if is_encrypted_office(content):
        return DocumentRejected("encrypted", "The file is protected by a password. Save it without one.")
    return DocumentRejected(
        "unsupported_type", "The file is in an old Office format. Save it as .docx or .xlsx and import that."
    )


def _check_sizes(package: zipfile.ZipFile, packed_bytes: int) -> None:
    """What the archive itself admits."""
    entries = package.infolist()
    if len(entries) > _ENTRIES:
        raise DocumentRejected(
            "bomb", f"The file has {len(entries):,} parts; at most {_ENTRIES:,} are allowed."
        )
    if any(entry.flag_bits & _ENCRYPTED_FLAG for entry in entries):
        raise DocumentRejected("encrypted", "The file is protected by a password. Save it without one.")
    inflated = sum(entry.file_size for entry in entries)
    if inflated > _INFLATED_BYTES or inflated > max(packed_bytes * _RATIO, _SMALL_BYTES):
        raise DocumentRejected(
            "bomb", f"The file would unpack to {inflated:,} bytes, far more than its size."
        )


def _unpack(package: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Reads the entry to its end: its size and checksum must be the ones that were declared."""
    with package.open(entry) as part:
        while part.read(_SLICE_BYTES):
            pass
