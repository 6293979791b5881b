"""Passages cut into what can be quoted: sentences, items, rows, code."""

import pytest

from gateway.answer.support.sentences import PieceKind, one_line, pieces, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Use a proxy, e.g. nginx. Then restart.", ["Use a proxy, e.g. nginx.", "Then restart."]),
        ("It costs 2.5 EUR. See Fig. 3 by Dr. Smith.", ["It costs 2.5 EUR.", "See Fig. 3 by Dr. Smith."]),
        ("Ask J. Doe etc. It works.", ["Ask J. Doe etc.", "It works."]),
        ("It is made by Acme Inc. They sell it.", ["It is made by Acme Inc.", "They sell it."]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        (
            "退款在14天内完成。超过30天不予退款！可以吗？可以",
            ["退款在14天内完成。", "超过30天不予退款！", "可以吗？", "可以"],
        ),
        ("他说“好。”然后走了。", ["他说“好。”", "然后走了。"]),
        ("A title\n\nA text", ["A title", "A text"]),
        ("It runs at 5 p.m. every day. Then it stops.", ["It runs at 5 p.m. every day.", "Then it stops."]),
        ("", []),
    ],
)
def test_prose_is_cut_at_sentence_ends_only(text: str, sentences: list[str]) -> None:
    """Abbreviations, initials and decimals don't end a sentence."""
    assert split_sentences(text) == sentences


PASSAGE = """\
# Rollback

Roll back first. Run this:

```bash
# no heading
acmectl rollback payment-service
```

Never do it when:

- a contract migration
  has run
- the window is closed

| Plan | Fee \\| net |
|---|---:|
| Basic | 5 EUR |
| Pro | |
"""


def test_every_structure_becomes_pieces_that_read_alone() -> None:
    """Rows name their columns, items and code keep what introduces them, headings go."""
    assert [(p.kind, p.text, p.lead) for p in pieces(PASSAGE)] == [
        (PieceKind.SENTENCE, "Roll back first.", ""),
        (PieceKind.SENTENCE, "Run this:", ""),
        (PieceKind.CODE, "```bash\n# no heading\nacmectl rollback payment-service\n```", "Run this:"),
        (PieceKind.SENTENCE, "Never do it when:", ""),
        (PieceKind.ITEM, "a contract migration has run", "Never do it when:"),
        (PieceKind.ITEM, "the window is closed", "Never do it when:"),
        (PieceKind.ROW, "Plan: Basic; Fee | net: 5 EUR", ""),
        (PieceKind.ROW, "Plan: Pro", ""),
    ]


def test_a_pieces_source_stands_in_the_passage_verbatim() -> None:
    """A quote can be found again by the reader."""
    assert all(piece.source in PASSAGE for piece in pieces(PASSAGE))


@pytest.mark.parametrize("content", ["```sh\nls", "```sh\nls\n", "```"])
def test_an_unclosed_fence_is_closed(content: str) -> None:
    """What follows the block in an answer must not become code."""
    (piece,) = pieces(content)
    assert piece.text.startswith("```")
    assert piece.text.splitlines()[-1] == "```"
    assert piece.source in content


def test_indented_commands_are_code() -> None:
    """A shell prompt or four blanks."""
    kinds = [p.kind for p in pieces("Run:\n\n    make test\n    make check\n\n$ ls -l\n")]
    assert kinds == [PieceKind.SENTENCE, PieceKind.CODE, PieceKind.CODE]


def test_wrapped_lines_are_joined_as_their_script_wants() -> None:
    """A blank between words, none between Han characters."""
    assert one_line("one\ntwo") == "one two"
    assert one_line("> 退款\n> 期限") == "退款期限"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (
            "Borrowing\nA member may borrow eight books.\n\nHours\nMonday to Friday",
            [("A member may borrow eight books.", "Borrowing"), ("Monday to Friday", "Hours")],
        ),
        ("借阅\n会员可借八本书。", [("会员可借八本书。", "借阅")]),
        ("Fees\nA card costs:\n- adults: 25", [("A card costs:", "Fees"), ("adults: 25", "Fees")]),
        ("Ask the staff in\nBerlin or Hamburg", [("Ask the staff in Berlin or Hamburg", "")]),
        ("It is open.\nA member borrows books.", [("It is open.", ""), ("A member borrows books.", "")]),
        ("Our name was\nharbour library for years.", [("Our name was harbour library for years.", "")]),
    ],
    ids=["two sections", "Chinese", "over a list", "wrapped", "a sentence", "goes on"],
)
def test_a_heading_above_a_part_of_a_passage_is_not_read_into_it(
    content: str, found: list[tuple[str, str]]
) -> None:
    """Small sections share a passage; each piece knows its heading, and wrapped prose has none."""
    assert [(piece.text, piece.heading) for piece in pieces(content)] == found
