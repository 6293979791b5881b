"""The demo's sample knowledge bases: documents, the people who ask, and what has to come back."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

_MEDIA_TYPES = {".md": "text/markdown", ".html": "text/html", ".txt": "text/plain"}


@dataclass(frozen=True, slots=True)
class SampleDocument:
    """One document of the manifest. ``path`` is ``tenant/knowledge base/source``.

    Valid from the start of ``valid_from`` until the start of ``valid_until`` (UTC); None is unbounded.
    """

    path: str
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    category: str
    valid_from: date | None
    valid_until: date | None
    sensitivity: int
    author: str
    approval: str
    language: str

    @property
    def tenant(self) -> str:
        return self.path.split("/")[0]

    @property
    def knowledge_base(self) -> str:
        return self.path.split("/")[1]

    @property
    def source(self) -> str:
        """The path below the knowledge base's folder, as an import of that folder would name it."""
        return self.path.split("/", 2)[2]

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES[PurePosixPath(self.path).suffix]

    def read(self) -> bytes:
        return files(__name__).joinpath(self.path).read_bytes()


@dataclass(frozen=True, slots=True)
class SampleUser:
    """Somebody who holds a demo token."""

    name: str
    tenant: str
    subject: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """``expect`` is a ``done`` status. An ANSWERED one cites the document with path ``document``, and
    ``answer_contains`` stands in both the document and the answer; both are empty for a refusal.
    """

    user: str
    question: str
    expect: str
    document: str
    answer_contains: str


@dataclass(frozen=True, slots=True)
class Samples:
    documents: tuple[SampleDocument, ...]
    users: Mapping[str, SampleUser]
    questions: tuple[SampleQuestion, ...]


def epoch_seconds(day: date | None) -> int | None:
    """The first second of ``day`` in UTC, as documents state their validity; None stays None."""
    return None if day is None else int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def load_samples() -> Samples:
    """Reads the manifest; the documents themselves are read when asked for."""
    manifest = tomllib.loads(files(__name__).joinpath("manifest.toml").read_text("utf-8"))
    return Samples(
        documents=tuple(map(_document, manifest["documents"])),
        users={name: _user(name, entry) for name, entry in manifest["users"].items()},
        questions=tuple(SampleQuestion(**entry) for entry in manifest["questions"]),
    )


def _document(entry: Mapping[str, Any]) -> SampleDocument:
    return SampleDocument(
        path=entry["path"],
        allow=tuple(entry["allow"]),
        deny=tuple(entry.get("deny", ())),
        category=entry["category"],
        valid_from=entry.get("valid_from"),
        valid_until=entry.get("valid_until"),
        sensitivity=entry["sensitivity"],
        author=entry["author"],
        approval=entry["approval"],
        language=entry["language"],
    )


def _user(name: str, entry: Mapping[str, Any]) -> SampleUser:
    return SampleUser(name, entry["tenant"], entry["subject"], tuple(entry["groups"]))
