"""Texts of one mark again and again: a pattern that tries every way to share them out would never end."""

from collections.abc import AsyncIterator

import anyio
import pytest

from gateway.adapters.children.build_child import ChildParser

TIMES = 40_000
PATIENCE_S = 20
TEXTS = {
    "bullets": ("a.txt", "Hello.\n\n" + "•" * TIMES + "x"),
    "stops": ("a.txt", "Hello.\n\n" + "." * TIMES + "x"),
    "a question's blanks": ("a.txt", "Q" + " " * TIMES + "x"),
    "a rule": ("a.md", "Hello.\n\n" + "-" * TIMES + " Original message"),
    "bars": ("a.md", "Hello.\n\n" + "|" * TIMES + " x"),
    "a title's blanks": ("a.md", "---\ntitle: a" + " " * TIMES + "b\n---\nHello."),
    "comments": ("a.txt", "<!---->" * 600 + "Hello."),
}


@pytest.fixture
async def parser() -> AsyncIterator[ChildParser]:
    child = ChildParser(cap_s=60, max_bytes=1_000_000)
    yield child
    await child.aclose()


async def test_marks_without_end_are_read_to_their_end(parser: ChildParser) -> None:
    """In proportion to their number, as any other text."""
    for name, (source, text) in TEXTS.items():
        with anyio.move_on_after(PATIENCE_S) as patience:
            built = await parser.build(source, "", text.encode())
            assert built.passages, name
        assert not patience.cancelled_caught, name
