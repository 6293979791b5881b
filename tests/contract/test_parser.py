"""What every DocumentParser does, in this process or in a child of its own."""

from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from gateway.adapters.children.build_child import ChildParser
from gateway.errors import DocumentRejected
from gateway.ingest.building import DocumentParser
from tests.contract.suites import IMPLEMENTATIONS
from tests.harness.world import DirectParser

PAGE = b"# Vacation\n\nThirty days a year.\n\n## Carry over\n\nUntil the end of March.\n"


@pytest.fixture(params=IMPLEMENTATIONS)
async def parser(request: pytest.FixtureRequest) -> AsyncIterator[DocumentParser]:
    """In this process, or in a child; serve and worker have the same one."""
    if request.param == "memory":
        yield DirectParser()
        return
    child = ChildParser(cap_s=60, max_bytes=1_000_000)
    yield child
    await child.aclose()


async def test_a_document_becomes_passages_with_their_place(parser: DocumentParser) -> None:
    """Title, breadcrumb and text, the same wherever it was parsed."""
    built = await parser.build("vacation.md", "text/markdown", PAGE)
    assert built == await DirectParser().build("vacation.md", "text/markdown", PAGE)
    assert [passage.section for passage in built.passages] == ["", "Carry over"]


async def test_a_file_that_is_no_document_is_rejected_with_its_reason(parser: DocumentParser) -> None:
    """As DocumentRejected, whichever side of a pipe it was found on."""
    with pytest.raises(DocumentRejected) as caught:
        await parser.build("page.md", "text/markdown", b"\x89PNG\r\n\x1a\n\0\0")
    assert caught.value.reason == "not_text"


async def test_a_cancelled_document_does_not_hold_up_the_next(parser: DocumentParser) -> None:
    """What was given up is over."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parser.build, "big.html", "text/html", b"<p>word</p>" * 40_000)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert (await parser.build("vacation.md", "text/markdown", PAGE)).title == "Vacation"
