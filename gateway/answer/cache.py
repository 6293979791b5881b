"""AnswerKey: everything two questions must share before one answer may serve both."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """Every part by name. Answers are never reused across keys, and there is no semantic match."""

    tenant: str
    kb_id: str
    kb_revision: str
    embedding_space_id: str
    scope_digest: str
    acl_revision: int
    question_hash: str
    conversation_digest: str
    prompt_version: str
    retrieval_config_version: str
    reranker_version: str
    model: str
    language: str
    output_policy_version: str
    max_output_tokens: int
    incarnation: str


class AnswerCache(Protocol):
    """Where whole answers may be kept. What it returns is re-verified before it is shown."""

    async def read(self, key: AnswerKey) -> bytes | None: ...

    async def write(self, key: AnswerKey, answer: bytes, ttl_s: float) -> None: ...
