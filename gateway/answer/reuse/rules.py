"""Reuse: which answers of others a question may be answered with, and whether others may get its own."""

from dataclasses import dataclass

from gateway.answer.cache import AnswerKey
from gateway.answer.question import Question
from gateway.answer.reuse.keepable import Unkept
from gateway.answer.reuse.keys import AnswerKeys
from gateway.answer.reuse.relative_time import about_now
from gateway.context import RequestContext


@dataclass(frozen=True, slots=True)
class Reuse:
    """``key`` None: it is answered alone. ``unkept`` says why no kept answer is told and none is kept, though
    it may be made for several who ask at once.
    """

    key: AnswerKey | None
    unkept: str = ""

    @property
    def kept_as(self) -> AnswerKey | None:
        return None if self.unkept else self.key


def reuse_of(
    keys: AnswerKeys, context: RequestContext, question: Question, *, model: str, max_output_tokens: int
) -> Reuse:
    if question.no_store:
        return Reuse(None, Unkept.NO_STORE.value)
    key = keys.of(context, question, model=model, max_output_tokens=max_output_tokens)
    return Reuse(key, Unkept.RELATIVE_TIME.value if about_now(question.text) else "")
