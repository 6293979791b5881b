"""The form fields that come with an upload, checked one by one."""

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from starlette.datastructures import FormData, UploadFile

from gateway.answer.question import checked_text
from gateway.errors import InvalidField
from gateway.retrieval.risk import APPROVED, MARKER, UNREVIEWED

_TEXT_MAX_CHARS = 300
#: what names something that is asked for later, under the same limit there
_NAME_MAX_CHARS = 256
_APPROVALS = (UNREVIEWED, APPROVED)
_MAX_MARKERS = 32
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class DocumentFields:
    """What an upload says of its documents. Times are whole seconds since the epoch."""

    knowledge_base: str
    allow: tuple[str, ...]
    deny: tuple[str, ...] = ()
    category: str = ""
    valid_from: int | None = None
    valid_until: int | None = None
    sensitivity: int = 0
    source: str | None = None
    author: str = ""
    approval: str = UNREVIEWED
    risk: tuple[str, ...] = ()
    activate: bool = False
    allow_partial: bool = False

    NAMES: ClassVar[tuple[str, ...]] = ()


DocumentFields.NAMES = tuple(f.name for f in dataclasses.fields(DocumentFields))


def document_fields(form: FormData) -> DocumentFields:
    """Raises InvalidField; an empty allow list is refused, because it would match nobody."""
    allow = _many(form, "allow")
    if not allow:
        raise InvalidField("allow is missing: name at least one group:NAME, user:NAME or public")
    fields = DocumentFields(
        knowledge_base=checked_text(_one(form, "knowledge_base"), "knowledge_base", _NAME_MAX_CHARS),
        allow=allow,
        deny=_many(form, "deny"),
        category=_text(form, "category", _NAME_MAX_CHARS),
        valid_from=_moment(form, "valid_from"),
        valid_until=_moment(form, "valid_until"),
        sensitivity=_sensitivity(form),
        source=_one(form, "source"),
        author=_text(form, "author"),
        approval=_text(form, "approval") or UNREVIEWED,
        risk=_risk(form),
        activate=_flag(form, "activate"),
        allow_partial=_flag(form, "allow_partial"),
    )
    if fields.approval not in _APPROVALS:
        raise InvalidField(f"approval is one of {', '.join(_APPROVALS)}")
    if not fields.knowledge_base.isprintable():
        raise InvalidField("knowledge_base holds a character that is not allowed")
    if None not in (fields.valid_from, fields.valid_until) and (
        (fields.valid_from or 0) >= (fields.valid_until or 0)
    ):
        raise InvalidField("valid_until must come after valid_from")
    return fields


def _risk(form: FormData) -> tuple[str, ...]:
    """Markers, each field one or several with commas between them."""
    given = (marker.strip() for entry in _many(form, "risk") for marker in entry.split(","))
    markers = tuple(dict.fromkeys(marker for marker in given if marker))
    if len(markers) > _MAX_MARKERS or not all(map(MARKER.fullmatch, markers)):
        raise InvalidField(
            f"risk has at most {_MAX_MARKERS} markers like external or user-generated: "
            "up to 32 small letters a to z, digits and '-' each, because models read them"
        )
    return markers


def _many(form: FormData, name: str) -> tuple[str, ...]:
    values = form.getlist(name)
    if any(isinstance(value, UploadFile) for value in values):
        raise InvalidField(f"{name} is a text field, not a file")
    return tuple(checked_text(value, name, _TEXT_MAX_CHARS) for value in values)


def _one(form: FormData, name: str) -> str | None:
    values = form.getlist(name)
    if len(values) > 1 or any(isinstance(value, UploadFile) for value in values):
        raise InvalidField(f"{name} is given more than once, or as a file")
    return str(values[0]) if values else None


def _text(form: FormData, name: str, max_chars: int = _TEXT_MAX_CHARS) -> str:
    value = _one(form, name)
    return checked_text(value, name, max_chars) if value else ""


def _flag(form: FormData, name: str) -> bool:
    value = _one(form, name)
    if value is None:
        return False
    if value.lower() not in _BOOLEANS:
        raise InvalidField(f"{name} is true or false")
    return _BOOLEANS[value.lower()]


def _sensitivity(form: FormData) -> int:
    value = _one(form, "sensitivity") or "0"
    if value not in {"0", "1", "2", "3"}:
        raise InvalidField("sensitivity is 0 (public), 1, 2 or 3 (secret)")
    return int(value)


def _moment(form: FormData, name: str) -> int | None:
    """An ISO 8601 date or time; without a zone it is UTC."""
    value = _one(form, name)
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidField(f"{name} is a date like 2026-01-31 or a time in ISO 8601") from None
    seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    if seconds < 0:
        raise InvalidField(f"{name} lies before 1970")
    return seconds
