"""Citation markers in any split, and the sentence each citation rests on."""

import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answer.citation import HOLD, CitationStream, cite, cite_all, claims
from gateway.answer.support import sentences
from gateway.answer.support.quote import quote_for, supported
from gateway.retrieval.chunk import Chunk
from tests.harness.chunks import sample_chunk


def run(text: str, known: int = 3) -> tuple[str, list[int], int]:
    stream = CitationStream(known)
    sent = stream.feed(text) + stream.flush()
    return sent, stream.cited, stream.unknown


@pytest.mark.parametrize(
    ("text", "sent", "cited", "unknown"),
    [
        ("Yes [1].", "Yes [1].", [1], 0),
        ("Yes [1, 2].", "Yes [1][2].", [1, 2], 0),
        ("Yes[2][1]", "Yes[2][1]", [2, 1], 0),
        ("Yes [1-3]", "Yes [1][2][3]", [1, 2, 3], 0),
        ("Yes [^1][^2]", "Yes [1][2]", [1, 2], 0),
        ("可以【1】。", "可以[1]。", [1], 0),
        ("可以【1†source】和【2、3】。", "可以[1]和[2][3]。", [1, 2, 3], 0),
        ("See [Source 2] and [passage: 1]", "See [2] and [1]", [2, 1], 0),
        ("见[来源1]。", "见[1]。", [1], 0),
        ("No [9].", "No.", [], 1),
        ("No [2][9][0].", "No [2].", [2], 2),
        ("No [1, 7].", "No [1].", [1], 1),
        ("退款[9]。", "退款。", [], 1),
        ("In [2024] and [1.5] and [ ] and [x]", "In [2024] and [1.5] and [ ] and [x]", [], 0),
        ("row[9] and f(x)[0]", "row[9] and f(x)[0]", [], 0),
        ("row【9】", "row", [], 1),
        ("`a[0] [1]` then [1]", "`a[0] [1]` then [1]", [1], 0),
        ("``a`[9]`` [2]", "``a`[9]`` [2]", [2], 0),
        ("```py\nx = a [9]\n``\n[1]\n```\nDone [2]", "```py\nx = a [9]\n``\n[1]\n```\nDone [2]", [2], 0),
        ("~~~\n[9]\n```\n[9]\n~~~~\n[9]", "~~~\n[9]\n```\n[9]\n~~~~\n", [], 1),
        ("A stray ` mark\nthen [9] [1]", "A stray ` mark\nthen [1]", [1], 1),
        ("[[1]]", "[[1]]", [1], 0),
        ("unfinished [1", "unfinished [1", [], 0),
        ("backwards [3-1]", "backwards [3][1]", [3, 1], 0),
        ("x" * 9 + " [" + "1," * 40 + "1]", "x" * 9 + " [" + "1," * 40 + "1]", [], 0),
    ],
)
def test_markers_become_canonical_and_unknown_ones_go(
    text: str, sent: str, cited: list[int], unknown: int
) -> None:
    """Every usual form of a marker, and the brackets that are none."""
    assert run(text) == (sent, cited, unknown)


@pytest.mark.parametrize(
    "text", ["~~~[1]", "```\n[9]\n```" + " " * 70 + "[1]", "a [1, 2] b【1†source】`x[9]`", "  ```\n[9]"]
)
def test_a_text_fed_by_the_character_comes_out_the_same(text: str) -> None:
    """The smallest pieces there are."""
    stream = CitationStream(3)
    sent = "".join(map(stream.feed, text)) + stream.flush()
    assert (sent, stream.cited, stream.unknown) == run(text)


_MARKS = "[1]/[1, 2]/[9]/[0]/[/]/1/,/-/^/【1†source】/【/】/†/[Source /来源/(/)/`/``/```/~~~"
_TEXT = "\n/ /  /\t/a/row/文/。/🙂/```\n"
FRAGMENTS = st.sampled_from([*f"{_MARKS}/{_TEXT}".split("/"), " " * 70, "`" * 70])


@given(st.lists(FRAGMENTS, max_size=30).map("".join), st.lists(st.integers(1, 7), max_size=60))
def test_any_split_of_the_text_yields_the_same_output(text: str, sizes: list[int]) -> None:
    """Tokens end anywhere; the reader must not see where."""
    stream = CitationStream(3)
    sent, rest = "", text
    for size in sizes:
        sent += stream.feed(rest[:size])
        rest = rest[size:]
    sent += stream.feed(rest) + stream.flush()
    assert (sent, stream.cited, stream.unknown) == run(text)


@given(st.text(alphabet="[]【】`~ \n1,a†", max_size=200))
def test_never_more_than_a_markers_length_is_held_back(text: str) -> None:
    """A text of nothing but beginnings of markers must not stop the stream."""
    stream = CitationStream(3)
    for character in text:
        stream.feed(character)
        assert len(stream._held) < HOLD


def test_an_endless_marker_is_let_go() -> None:
    """A list of numbers without an end is text."""
    stream = CitationStream(3)
    text = "[" + "1," * 200
    held = [stream.feed(character) for character in text]
    assert "".join(held[: HOLD + 1]) != ""
    assert "".join(held) + stream.flush() == text


@given(st.text(alphabet="abc 。文,.\n", max_size=200))
def test_text_without_brackets_and_code_is_untouched(text: str) -> None:
    """Only markers may change."""
    assert run(text) == (text, [], 0)


def chunk(content: str) -> Chunk:
    return sample_chunk(
        content,
        document_version=4,
        title="Refunds",
        section="Terms > Refunds",
        page=7,
        source_uri="docs/refunds.md",
    )


REFUNDS = (
    "Refunds are paid within 14 days. After 30 days no refund is possible.\n\n"
    "| Plan | Fee |\n|---|---|\n| Basic | 5 EUR |\n| Pro | 9 EUR |\n"
)


def test_a_citation_carries_its_source_and_a_verbatim_quote() -> None:
    """Document version, page, section and the sentence that carries the statement."""
    cited = cite("After 30 days, a refund is no longer possible [1].", 1, chunk(REFUNDS))
    assert (cited.document_id, cited.document_version, cited.page) == ("d1", 4, 7)
    assert cited.quote == "After 30 days no refund is possible."
    assert cited.supported


@pytest.mark.parametrize(
    "answer",
    [
        "Refunds are paid within 15 days [1].",
        "Refunds are not paid within 14 days [1].",
        "Bananas grow in warm countries [1].",
        "Refunds are paid within 14 days [1]. Shipping is free for everybody [1].",
        "[1]",
    ],
)
def test_a_changed_number_a_negation_or_another_topic_is_not_supported(answer: str) -> None:
    """One bad sentence is enough."""
    assert not cite(answer, 1, chunk(REFUNDS)).supported


def test_a_table_row_is_quoted_as_it_stands() -> None:
    """The claim names columns, the quote is the row."""
    cited = cite("Plan: Pro; Fee: 9 EUR [1]", 1, chunk(REFUNDS))
    assert cited.quote == "| Pro | 9 EUR |"
    assert cited.supported


def test_a_claim_may_rest_on_two_neighbouring_sentences() -> None:
    """The quote then spans both, verbatim."""
    content = "The gate opens at 8. It closes at 17. Visitors need a badge."
    cited = cite("The gate opens at 8 and closes at 17 [1].", 1, chunk(content))
    assert (cited.quote, cited.supported) == ("The gate opens at 8. It closes at 17.", True)


def test_chinese_claims_find_their_sentence() -> None:
    """Han runs are compared by pairs of characters."""
    content = "退款在14天内完成。超过30天不予退款。"
    assert quote_for("超过30天后不予退款", content) == "超过30天不予退款。"
    assert cite("超过30天不予退款[2]。", 2, chunk(content)).supported


def test_each_marker_belongs_to_the_sentence_before_it() -> None:
    """Whether it stands before or after the full stop."""
    answer = "First one [1]. Second one. [2] Third. Fourth one [1][3]."
    assert claims(answer, 1) == ["First one", "Fourth one"]
    assert claims(answer, 2) == ["Second one."]
    assert claims(answer, 3) == ["Fourth one"]


def test_support_needs_words_numbers_and_the_same_negation() -> None:
    """The check alone."""
    assert supported("The limit is 5 GB", "The limit is 5 GB for each user.")
    assert not supported("The limit is 5 GB", "The limit is 50 GB for each user.")
    assert not supported("", "Anything.")
    assert quote_for("anything", "") == ""


def reads_of(answer: str, sources: int) -> int:
    """How many texts are taken apart into pieces for the citations of an answer."""
    counted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal counted
        counted += event == "call" and frame.f_code is sentences.pieces.__code__

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        cite_all(answer, {n: (chunk(REFUNDS),) for n in range(1, sources + 1)})
    finally:
        sys.setprofile(before)
    return counted


def test_a_passage_is_read_once_for_all_the_sentences_that_cite_it() -> None:
    """And the answer once for all of its sources: this happens on the event loop."""
    answer = " ".join(f"Refunds are paid within {n} days [1][2][3]." for n in range(40))
    assert reads_of(answer, 3) <= 40 + 3


def test_an_endless_list_of_citations_is_not_checked_to_its_end() -> None:
    """Sixty sentences are; what wasn't looked at isn't called supported."""
    said = "Refunds are paid within 14 days [1]. "
    assert cite(said * 60, 1, chunk(REFUNDS)).supported
    longer = cite(said * 61, 1, chunk(REFUNDS))
    assert (longer.quote, longer.supported) == ("Refunds are paid within 14 days.", False)
