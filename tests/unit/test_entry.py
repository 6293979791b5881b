"""Entries: a kept answer comes back whole, and nothing else comes back at all."""

import random
import zlib
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.access.authorizer import DocumentRef
from gateway.answer.cache import ENTRY_BYTES, Damaged
from gateway.answer.outcome import Ending, KeptAnswer, Opening
from gateway.answer.reuse.entry import Entries
from gateway.stream.protocol import CitedSource, Searched, Source, Usage

DIGEST = "ab" * 32
SEED = 7
FORM = Entries()

SOURCE = Source(
    n=1,
    chunk_id="c1",
    document_id="d1",
    document_version=2,
    title="出差 – travel",
    section="",
    page=0,
    uri="file:travel.md",
    score=0.25,
    raw_score=7.0,
    score_label="words #1",
    hit_reason="words",
    risk=("instructions",),
)
CITATION = CitedSource(1, "c1", "d1", 2, "travel", "", 0, "file:travel.md", "up to 40 €", supported=True)
DOCUMENTS = frozenset({DocumentRef("d1", 2), DocumentRef("d2", 0)})
ANSWER = KeptAnswer(
    Opening(
        "scripted",
        (SOURCE, replace(SOURCE, n=2, score=None, document_id="d2", document_version=0)),
        DOCUMENTS,
    ),
    "Up to 40 € a day.\n\0 \U0001f600 [1]",
    Ending((), (CITATION,), Usage(120, 9, estimated=True)),
    made_at=1_700_000_000.123,
)
REFUSAL = KeptAnswer(
    Opening("scripted", (), DOCUMENTS),
    "",
    Ending(("NO_CANDIDATES",), (), Usage(0, 0, estimated=False), Searched("handbook", 3, ("lunar",))),
    made_at=1_700_000_000.0,
)
LONG = replace(ANSWER, text="The daily limit is 40 €. " * 2000)
KEPT = {"answer": ANSWER, "refusal": REFUSAL, "long": LONG}


def members(kept: KeptAnswer = ANSWER) -> dict[str, Any]:
    """What stands in an entry."""
    content = FORM.encode(DIGEST, kept)
    written: dict[str, Any] = orjson.loads(zlib.decompress(content[1:]) if content[0] else content[1:])
    return written


def plain(content: object) -> bytes:
    return b"\x00" + (content if isinstance(content, bytes) else orjson.dumps(content))


def damaged(content: bytes, digest: str = DIGEST) -> bool:
    """Any other exception fails the test."""
    try:
        FORM.decode(digest, content)
    except Damaged:
        return True
    return False


@pytest.mark.parametrize("name", KEPT)
def test_what_was_kept_comes_back_whole(name: str) -> None:
    """Each part of it, of the same types."""
    assert FORM.decode(DIGEST, FORM.encode(DIGEST, KEPT[name])) == KEPT[name]


def test_long_answers_are_packed() -> None:
    """From about a KiB on."""
    assert len(FORM.encode(DIGEST, LONG)) < len(LONG.text) / 10
    assert FORM.encode(DIGEST, REFUSAL)[1:] == orjson.dumps(members(REFUSAL))


def test_an_entry_of_another_key_is_damaged() -> None:
    """Moved there by whoever may write into the store."""
    assert damaged(FORM.encode(DIGEST, ANSWER), digest="cd" * 32)


def test_what_could_not_be_unpacked_again_is_too_large_for_any_store() -> None:
    """However well it could be packed."""
    huge = replace(ANSWER, text="a" * 5_000_000)
    assert len(FORM.encode(DIGEST, huge)) > ENTRY_BYTES
    largest = replace(ANSWER, text="a" * 4_000_000)
    content = FORM.encode(DIGEST, largest)
    assert len(content) < ENTRY_BYTES
    assert FORM.decode(DIGEST, content) == largest
    bomb = b"\x01" + zlib.compress(FORM.encode(DIGEST, huge)[1:])
    assert len(bomb) < ENTRY_BYTES
    assert damaged(bomb)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        b"\x01",
        b"\x02{}",
        b"\x00[]",
        b"\x00null",
        b"\x00{",
        b"\x00" + b"[" * 10_000,
        b"\x00\xff\xfe",
        b"\x01" + zlib.compress(b"a" * 20_000_000),
        b"\x01" + zlib.compress(orjson.dumps({}))[:-2],
        b"\x01" + zlib.compress(orjson.dumps({})) + b"more",
        plain(b'{"format":1e400}'),
        plain(b'{"format":NaN}'),
    ],
)
def test_what_is_no_entry_is_damaged(content: bytes) -> None:
    """Without unpacking more than an entry may have."""
    assert damaged(content)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": True},
        {"format": "1"},
        {"key": None},
        {"more": 1},
        {"made_at": "now"},
        {"made_at": False},
        {"model": 1},
        {"text": None},
        {"text": ""},
        {"reasons": ["NO_CANDIDATES"]},
        {"reasons": ["NO_CANDIDATES"], "text": ""},
        {"reasons": [1]},
        {"searched": {"knowledge_base": "handbook", "passages": 0, "missing": []}},
        {"documents": []},
        {"documents": [["d1", 2]]},
        {"documents": [["d1", True], ["d2", 0]]},
        {"documents": [["d1", 2, 3], ["d2", 0]]},
        {"documents": "d1"},
        {"sources": {}},
        {"sources": [[]]},
        {"usage": None},
        {"usage": {"input_tokens": -1, "output_tokens": 0, "estimated": False}},
        {"usage": {"input_tokens": 1.0, "output_tokens": 0, "estimated": False}},
        {"usage": {"input_tokens": 1, "output_tokens": 0, "estimated": 0}},
        {"usage": {"input_tokens": 1, "output_tokens": 0, "estimated": False, "more": 0}},
    ],
)
def test_a_member_that_is_not_what_it_must_be_is_damaged(change: dict[str, Any]) -> None:
    """Also one that would be shown though nobody looked whether it may be."""
    assert not damaged(plain(members()))
    assert damaged(plain({**members(), **change}))


@pytest.mark.parametrize("change", [{"reasons": ["BECAUSE"]}, {"text": "But still."}, {"citations": [{}]}])
def test_a_refusal_that_says_something_is_damaged(change: dict[str, Any]) -> None:
    """And one whose reason nobody knows."""
    assert not damaged(plain(members(REFUSAL)))
    assert damaged(plain({**members(REFUSAL), **change}))


@pytest.mark.parametrize("part", ["sources", "citations"])
def test_every_member_of_a_passage_is_needed(part: str) -> None:
    """And of its type, one by one; no other may be there."""
    first = members()[part][0]
    for name in first:
        without = {other: value for other, value in first.items() if other != name}
        for changed in (without, {**first, name: {}}, {**first, "more": 1}):
            assert damaged(plain({**members(), part: [changed]})), name


def test_no_bytes_raise_anything_but_damaged() -> None:
    """Random ones, entries with bytes changed, cut or added, JSON with values in each other's places."""
    chance = random.Random(SEED)
    packed, bare = FORM.encode(DIGEST, LONG), plain(members())
    for _ in range(2000):
        assert damaged(chance.choice((b"\x00", b"\x01", b"")) + chance.randbytes(chance.randrange(60)))
    for content in (packed, bare):
        for _ in range(1000):
            mutated = bytearray(content)
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
            damaged(bytes(mutated))
            assert damaged(content[: chance.randrange(len(content))])
            assert damaged(content + chance.randbytes(3))
    written = members()
    for _ in range(2000):
        damaged(plain(_shuffled(written, list(_values(written)), chance)))


def _values(content: Any) -> Any:
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    yield content
    for value in inner:
        yield from _values(value)


def _shuffled(content: Any, values: list[Any], chance: random.Random) -> Any:
    if chance.random() < 0.02:
        return chance.choice([*values, None, -1, 2**63, 1e300, "", [], {}])
    if isinstance(content, dict):
        return {name: _shuffled(value, values, chance) for name, value in content.items()}
    if isinstance(content, list):
        return [_shuffled(value, values, chance) for value in content]
    return content
