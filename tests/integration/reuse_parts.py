"""Parts of the town of the reuse test: a model that says what it reads, and an engine that denies."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from gateway.access.authorizer import CatalogRecheck, DocumentRef, DropReason
from gateway.access.scope import AccessScope
from gateway.answer.model import ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import Prompt
from gateway.context import Deadline

#: what no model may get
SECRET_LEVEL = 2


class EchoModel:
    """Says what each passage says, and cites it; cleared for less than everything."""

    name = "echo"
    max_sensitivity = SECRET_LEVEL - 1

    def __init__(self) -> None:
        self.called = 0

    @asynccontextmanager
    async def stream(self, prompt: Prompt, deadline: Deadline) -> AsyncIterator[AsyncIterator[ModelPiece]]:
        self.called += 1
        yield self._pieces(prompt)

    async def _pieces(self, prompt: Prompt) -> AsyncIterator[ModelPiece]:
        for item in prompt.evidence:
            yield TextPiece(f"{item.text} [{item.n}] ")
        yield ModelUsage(10, len(prompt.evidence), estimated=False)
        yield ModelFinish("stop")


class Engine:
    """An outside permission engine over the catalog's word: denies persons single documents."""

    def __init__(self) -> None:
        self.denied: set[tuple[str, str]] = set()
        self.inside: CatalogRecheck | None = None

    async def check(
        self, scope: AccessScope, refs: Sequence[DocumentRef], now: float
    ) -> Mapping[DocumentRef, DropReason | None]:
        assert self.inside is not None
        verdicts = await self.inside.check(scope, refs, now)
        return {ref: self._verdict(scope, ref, verdict) for ref, verdict in verdicts.items()}

    def _verdict(self, scope: AccessScope, ref: DocumentRef, verdict: DropReason | None) -> DropReason | None:
        denied = any((name, ref.document_id) in self.denied for name in scope.principals)
        return DropReason.ACL if denied else verdict
