"""ChildParser: parses and chunks in a child process, where a hostile file can only hurt that child."""

import json

import anyio

from gateway.adapters.children.build_loop import BUILT, REJECTED
from gateway.adapters.children.child import AnswerTooLarge, Child, ChildEnded, ChildNotStarted
from gateway.adapters.children.child_loop import FAILED
from gateway.errors import DocumentRejected, InvariantViolated, Unavailable
from gateway.ingest import chunkfile
from gateway.ingest.document import BuiltDocument

_ANSWER_BYTES = 256 * 1024 * 1024


class ChildParser:
    """A DocumentParser with one child, started on first use and reused; builds wait for each other.

    ``cap_s`` bounds one document's wall clock and CPU time, ``max_bytes`` its size, ``memory_mb`` the child's
    address space (on Linux). A cancel or the cap kills the child. A reused child that dies is replaced once,
    since something else may have killed it.
    """

    def __init__(self, *, cap_s: float, max_bytes: int, memory_mb: int = 1024) -> None:
        self._cap_s = cap_s
        self._max_bytes = max_bytes
        self._lock = anyio.Lock()
        arguments = [str(cap_s), str(memory_mb)]
        self._child = Child("gateway.adapters.children.build_loop", arguments, answer_bytes=_ANSWER_BYTES)

    @property
    def pid(self) -> int | None:
        """The living child's process id."""
        return self._child.pid

    async def build(self, source: str, media_type: str, content: bytes) -> BuiltDocument:
        """Raises DocumentRejected with any of its reasons; Unavailable when no child can be started."""
        if len(content) > self._max_bytes:
            raise DocumentRejected(
                "too_large", f"The file has {len(content):,} bytes; at most {self._max_bytes:,} are allowed."
            )
        head = json.dumps({"source": source, "media_type": media_type}).encode()
        async with self._lock:
            reused = self.pid is not None
            try:
                kind, payload = await self._ask(head, content)
            except ChildEnded:
                if not reused:
                    raise self._too_much() from None
                try:
                    kind, payload = await self._ask(head, content)
                except ChildEnded:
                    raise self._too_much() from None
        return _built(kind, payload)

    async def aclose(self) -> None:
        """Ends the child, also one at work; that build raises Unavailable."""
        await self._child.aclose()

    def _too_much(self) -> DocumentRejected | Unavailable:
        if self._child.closed:
            return Unavailable("the document reader is closed")
        return DocumentRejected(
            "too_complex", "Reading the document took more memory or computing time than allowed."
        )

    async def _ask(self, head: bytes, content: bytes) -> tuple[bytes, bytes]:
        """Raises ChildEnded, DocumentRejected, Unavailable."""
        try:
            return await self._child.ask(head, content, self._cap_s)
        except TimeoutError:
            raise DocumentRejected(
                "too_complex", f"Reading the document took longer than {self._cap_s:g} seconds."
            ) from None
        except AnswerTooLarge:
            raise DocumentRejected(
                "too_complex", "The document becomes too large when it is cut into passages."
            ) from None
        except ChildNotStarted:
            raise Unavailable("the document reader could not be started, or is closed") from None


def _built(kind: bytes, payload: bytes) -> BuiltDocument:
    if kind == BUILT:
        return chunkfile.load(payload)
    if kind == REJECTED:
        reason, detail = json.loads(payload)
        raise DocumentRejected(reason, detail)
    if kind == FAILED:
        where = payload.decode("utf-8", "replace")
        raise DocumentRejected("corrupt", f"The document could not be read ({where}).")
    raise InvariantViolated("the document reader gave an unknown answer")
