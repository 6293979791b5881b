"""AnswerKey: everything two questions must share before one answer may serve both. The port to a store."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """Every part by name. Answers are never reused across keys, and there is no semantic match.

    ``kb_revision`` is that of the release the question is bound to; ``scope_digest`` names what its asker may
    see and ``acl_revision`` the state of the permissions it was read from; ``conversation_digest`` is '' for
    a question that stands alone. ``gateway_digest`` names the gateway's version and all of its settings that
    shape an answer and stand in no other part.
    """

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
    gateway_digest: str

    @property
    def digest(self) -> str:
        """SHA-256 of all parts, in hexadecimal; equal for equal keys only."""
        parts = [getattr(self, name) for name in self.__slots__]
        canonical = json.dumps(parts, separators=(",", ":")).encode()
        return hashlib.sha256(canonical).hexdigest()


#: what one answer may take in a store, as it is written down
ENTRY_BYTES = 256 * 1024


class StoreUnavailable(Exception):
    """The store can't be asked now, or not in time. No answer depends on it."""


class Damaged(Exception):
    """What was read isn't an answer that was kept under this key."""


class AnswerStore(Protocol):
    """Where whole answers may be kept, by the digest of their key. What it returns is checked again before it
    is shown, and nothing is lost with it. Every method raises StoreUnavailable.
    """

    async def read(self, digest: str) -> bytes | None:
        """Raises Damaged when it is no entry of this key, and the store can tell."""
        ...

    async def write(self, digest: str, answer: bytes, ttl_s: float, documents: Collection[str]) -> bool:
        """Replaces what is there; gone after ``ttl_s`` at the latest, and when one of the documents is
        forgotten. False when there is no room for it: it is larger than ENTRY_BYTES, or the store is full.
        """
        ...

    async def forget(self, documents: Collection[str]) -> int:
        """Answers that rest on one of them are gone; how many those were."""
        ...

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        """Whether this one makes the answer now; again by the same owner it lasts from now on."""
        ...

    async def unclaim(self, digest: str, owner: str) -> None:
        """Changes nothing when it is somebody else's."""
        ...
