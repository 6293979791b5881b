"""What lies below the paths that somebody names: the files to import, and why the others are left out."""

import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import typer

from gateway.errors import DocumentRejected

_SOURCE_MAX_CHARS = 500
#: how a folder that can't be looked into is named when it is the given one itself
ROOT = "./"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """``source`` is the document's name: the path below the given folder, in Unicode's composed form."""

    source: str
    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """``reason`` is a stable code that ``gateway.cli.reasons`` explains; ``source`` can be printed."""

    source: str
    reason: str
    detail: str = ""


@dataclass(slots=True)
class Found:
    """``passed_over`` is left out on purpose; ``failed`` should have been imported and can't be."""

    by_source: dict[str, FoundFile] = field(default_factory=dict)
    passed_over: list[LeftOut] = field(default_factory=list)
    failed: list[LeftOut] = field(default_factory=list)

    @property
    def files(self) -> list[FoundFile]:
        """In order of their names."""
        return [self.by_source[source] for source in sorted(self.by_source)]

    def names(self) -> frozenset[str]:
        """Everything that is there, whether it can be imported or not."""
        return frozenset(self.by_source).union(each.source for each in (*self.passed_over, *self.failed))


def found_below(paths: Sequence[Path], include: Sequence[str] = ()) -> Found:
    """Every file of the folders, and the files named by themselves, which are never passed over.

    Raises typer.BadParameter for a path that doesn't exist.
    """
    found = Found()
    for path in paths:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise typer.BadParameter(f"{printable(path)}: {error.strerror}") from error
        if stat.S_ISDIR(mode):
            _look_below(path, include, found)
        else:
            _take(found, path, PurePath(path.name))
    return found


def printable(name: os.PathLike[str] | str) -> str:
    """The name as a terminal can show it, whatever its bytes are."""
    text = os.fspath(name).encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _look_below(root: Path, include: Sequence[str], found: Found) -> None:
    home = root.resolve()
    for entry in _entries_below(root, found):
        below = PurePath(os.path.relpath(entry.path, root))
        reason = _reason_against(entry, below, include, home)
        if reason is None:
            _take(found, Path(entry.path), below)
        else:
            found.passed_over.append(LeftOut(_source(below), reason))


def _entries_below(root: Path, found: Found) -> Iterator[os.DirEntry[str]]:
    """All that lies in the folder and in those below it, links to folders not followed."""
    folders = [os.fspath(root)]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError as error:
            below = _source(PurePath(os.path.relpath(folder, root)))
            found.failed.append(LeftOut(f"{below}/", "unreadable", error.strerror or ""))
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                folders.append(entry.path)
            else:
                yield entry


def _reason_against(
    entry: os.DirEntry[str], below: PurePath, include: Sequence[str], home: Path
) -> str | None:
    """Why somebody who imports a folder doesn't mean this; None when he does."""
    if entry.name.startswith("."):
        return "hidden"
    if entry.is_symlink() and (reason := _reason_against_link(Path(entry.path), home)):
        return reason
    if include and not any(below.match(pattern) for pattern in include):
        return "not_included"
    if not _is_read(below):
        return "unsupported_type"
    try:
        status = entry.stat()
    except OSError:
        return None  # it is meant, and can't be read: that will be said of it
    if not stat.S_ISREG(status.st_mode):
        return "not_a_file"
    return None if status.st_size else "empty"


def _is_read(below: PurePath) -> bool:
    from gateway.ingest.parsing import format_of  # the parsers take a while to load

    try:
        format_of(below.as_posix(), "")
    except DocumentRejected:
        return False
    return True


def _reason_against_link(path: Path, home: Path) -> str | None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # it leads nowhere, or round in a circle
        return "broken_link"
    if not target.is_relative_to(home):
        return "outside"
    return "folder_link" if target.is_dir() else None


def _take(found: Found, path: Path, below: PurePath) -> None:
    source = _source(below)
    reason = _reason_against_name(source, below, found)
    try:
        status = path.stat()
    except OSError as error:
        reason = reason or LeftOut(source, "unreadable", error.strerror or "")
    else:
        if not stat.S_ISREG(status.st_mode):
            reason = reason or LeftOut(source, "unreadable", "it is no file")
        elif reason is None:
            found.by_source[source] = FoundFile(source, path, status.st_size)
    if reason is not None:
        found.failed.append(reason)


def _source(below: PurePath) -> str:
    """Composed, as most systems write it: the same file is the same document wherever it comes from.

    A double quote can't be in a form's file name; HTML's forms write %22.
    """
    return unicodedata.normalize("NFC", printable(below.as_posix())).replace('"', "%22")


def _reason_against_name(source: str, below: PurePath, found: Found) -> LeftOut | None:
    name = below.as_posix()
    if printable(name) != name or "\\" in name or name != name.strip():
        return LeftOut(source, "bad_name", "it holds characters that a document's name can't have")
    if len(source) > _SOURCE_MAX_CHARS:
        return LeftOut(source, "bad_name", f"it has more than {_SOURCE_MAX_CHARS} characters")
    if source in found.by_source:
        return LeftOut(source, "same_name", f"{printable(found.by_source[source].path)} has it already")
    return None


def total_bytes(files: Iterable[FoundFile]) -> int:
    return sum(file.size_bytes for file in files)
