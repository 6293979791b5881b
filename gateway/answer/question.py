"""A question as the server accepts it."""

from dataclasses import dataclass

from gateway.answer.prompt import language_of
from gateway.errors import InvalidField


@dataclass(frozen=True, slots=True)
class Question:
    """``knowledge_base`` None means the caller's only permitted one. ``own`` is what was asked, where
    ``text`` tells it so that it stands alone, and ``rewritten_by`` says whose words those are. ``no_store``
    wants an answer made for this question alone.
    """

    text: str
    knowledge_base: str | None = None
    conversation_id: str | None = None
    language: str | None = None
    max_output_tokens: int | None = None
    own: str = ""
    rewritten_by: str = ""
    no_store: bool = False

    @property
    def answer_language(self) -> str:
        return self.language or language_of(self.text)


def checked_text(value: object, field: str, max_chars: int) -> str:
    """A text a person typed; raises InvalidField for anything that is not plain, whole Unicode."""
    if not isinstance(value, str):
        raise InvalidField(f"{field} must be a string")
    text = value.strip()
    if not text:
        raise InvalidField(f"{field} is empty")
    if len(text) > max_chars:
        raise InvalidField(f"{field} is longer than {max_chars} characters")
    if "\x00" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise InvalidField(f"{field} holds NUL or half a surrogate pair")
    return text
