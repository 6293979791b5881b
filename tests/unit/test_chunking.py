"""Chunking: passages follow the structure, stay inside their size and lose nothing."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import DocumentRejected
from gateway.ingest.building import build_document
from gateway.ingest.chunking import DEFAULT_LIMITS, SPLITTER_VERSION, chunk
from gateway.ingest.document import Block, BlockKind, ParsedDocument, Passage
from gateway.ingest.splitting import estimate_tokens, split_text
from gateway.ingest.tokens import count_tokens, most_tokens
from gateway.retrieval.terms import TERMS_VERSION

LIMIT = DEFAULT_LIMITS.maximum


def cut(*blocks: Block) -> tuple[Passage, ...]:
    return chunk(ParsedDocument("T", blocks, "test/1"))


def markdown(text: str) -> tuple[Passage, ...]:
    return build_document("a.md", "", text.encode()).passages


def letters(text: str) -> str:
    return re.sub(r"\s+", "", text)


def sentences(count: int, first: int = 0) -> str:
    return " ".join(f"Sentence number {n} says something of its own." for n in range(first, first + count))


def test_the_splitter_version_follows_the_terms() -> None:
    """Other lexical terms mean other rows, so they change the chunk ids."""
    assert TERMS_VERSION in SPLITTER_VERSION


def test_each_part_of_a_forty_row_table_carries_the_column_names() -> None:
    """Every row is in exactly one part, under the names."""
    rows = "".join(f"| E{n:03} | what error {n} means and what to do about it |\n" for n in range(40))
    passages = markdown(f"# T\n\n## Codes\n\nAll codes:\n\n| Code | Meaning |\n|---|---|\n{rows}")
    assert len(passages) > 2
    for passage in passages:
        assert "| Code | Meaning |\n| --- | --- |\n| E" in passage.content
        assert passage.section == "Codes"
        assert estimate_tokens(passage.content) <= LIMIT
    found = re.findall(r"E\d{3}", "".join(p.content for p in passages))
    assert found == [f"E{n:03}" for n in range(40)]


def test_a_table_of_a_thousand_columns_becomes_records() -> None:
    """Names that alone overflow a passage stand next to their values instead."""
    columns = tuple(f"column{n}" for n in range(1000))
    passages = cut(Block(BlockKind.TABLE, "", columns=columns, rows=(tuple("abcdefghij" * 100),)))
    text = "\n".join(p.content for p in passages)
    assert all(f"column{n}: {'abcdefghij'[n % 10]}" in text for n in range(1000))
    assert max(estimate_tokens(p.content) for p in passages) <= LIMIT


def test_a_row_too_long_for_one_passage_is_split_with_its_key() -> None:
    """Each part of the record says which row and which column it belongs to."""
    passages = cut(
        Block(BlockKind.TABLE, "", columns=("Code", "Meaning"), rows=(("E1", sentences(80)), ("E2", "short")))
    )
    assert len(passages) > 2
    for passage in passages[:-1]:
        assert passage.content.startswith("Code: E1\nMeaning: Sentence number")
        assert estimate_tokens(passage.content) <= LIMIT
    assert "| E2 | short |" in passages[-1].content


def test_a_table_that_would_blow_up_is_refused() -> None:
    """Two-byte cells under a thousand long names must not become gigabytes."""
    columns = tuple(f"{n} " + "long name " * 8 for n in range(1000))
    with pytest.raises(DocumentRejected) as caught:
        cut(Block(BlockKind.TABLE, "", columns=columns, rows=(("x",) * 1000,) * 300))
    assert caught.value.reason == "too_complex"


def test_column_names_without_rows_are_no_passage_alone() -> None:
    """A header-only table is nothing to answer from."""
    with pytest.raises(DocumentRejected) as caught:
        markdown("| a | b |\n|---|---|\n")
    assert caught.value.reason == "blank"


def test_code_stays_whole_up_to_the_maximum() -> None:
    """A fence longer than the target is one passage."""
    code = "```python\n" + "\n".join("result = compute(result)" for _ in range(45)) + "\n```"
    assert DEFAULT_LIMITS.target < estimate_tokens(code) <= LIMIT
    assert [p.content for p in markdown(code)] == [code]


def test_longer_code_is_cut_at_blank_lines_inside_fences() -> None:
    """Each part is a fenced block of its own with the language; indentation stays."""
    body = "\n\n".join(f"def f{n}():\n    value = {n}\n    return value" for n in range(60))
    passages = markdown(f"```python\n{body}\n```\n")
    assert len(passages) > 1
    for passage in passages:
        assert passage.content.startswith("```python\ndef f")
        assert passage.content.endswith("    return value\n```")
        assert estimate_tokens(passage.content) <= LIMIT


def test_questions_are_passages_of_their_own() -> None:
    """A short pair is never packed with its neighbours."""
    passages = markdown("# FAQ\n\nHello.\n\n## Why?\n\nBecause.\n\n## How?\n\nSlowly.\n")
    assert [p.content for p in passages] == ["Hello.", "Why?\nBecause.", "How?\nSlowly."]


def test_each_part_of_a_long_answer_repeats_the_question() -> None:
    """A pair beyond the maximum is split, but never without its question."""
    passages = cut(Block(BlockKind.QA, "How do I do it?\n" + sentences(90)))
    assert len(passages) > 1
    assert all(p.content.startswith("How do I do it?\nSentence") for p in passages)


def test_a_split_list_repeats_its_lead_in() -> None:
    """Items are never cut apart and each part says what they are."""
    items = "".join(f"- Step {n}: {sentences(3, n)}\n  - detail {n}\n" for n in range(20))
    passages = markdown(f"# T\n\nIntro. Do these steps:\n\n{items}")
    assert len(passages) > 2
    assert passages[0].content.startswith("Intro. Do these steps:\n\n- Step 0")
    for passage in passages[1:]:
        assert passage.content.startswith("Do these steps:\n- Step")
        assert re.search(r"\n  - detail \d+$", passage.content)


def test_a_lead_in_stays_with_its_code() -> None:
    """The sentence before a block goes where the block goes."""
    code = "```\n" + "\n".join(f"line {n} of it" for n in range(50)) + "\n```"
    passages = markdown(f"{sentences(12)}\n\n{sentences(12)}\n\nRun this:\n\n{code}\n")
    assert passages[-1].content == f"Run this:\n\n{code}"


def test_long_chinese_text_is_cut_at_sentence_ends() -> None:
    """。！？； end sentences without white space after them."""
    text = "".join(f"第{n}条规定说明了如何处理超时错误，以及何时重试；否则立即返回！" for n in range(60))
    passages = cut(Block(BlockKind.TEXT, text))
    assert "".join(p.content for p in passages) == text
    assert all(p.content[-1] in "；！" for p in passages)
    sizes = [estimate_tokens(p.content) for p in passages]
    assert max(sizes) <= LIMIT
    assert max(sizes) - min(sizes) < 80


def test_a_dot_inside_a_number_or_abbreviation_is_no_sentence_end() -> None:
    """Versions and e.g. don't end a sentence; a quote after the stop belongs to it."""
    text = 'Use v1.2.3, e.g. on Linux. He said "stop." Then nothing.'
    assert split_text(text, 1, 20) == ["Use v1.2.3, e.g. on Linux.", 'He said "stop."', "Then nothing."]


def test_sections_are_never_mixed_unless_they_are_tiny_siblings() -> None:
    """Tiny siblings share their parent's breadcrumb and keep their headings in the text."""
    passages = markdown(
        "# T\n\n## A\n\n### One\n\nTiny one.\n\n### Two\n\nTiny two.\n\n## B\n\n### Three\n\nTiny three.\n\n"
        f"## C\n\n{sentences(6)}\n"
    )
    assert [(p.section, p.content) for p in passages] == [
        ("A", "One\nTiny one.\n\nTwo\nTiny two."),
        ("B > Three", "Tiny three."),
        ("C", sentences(6)),
    ]


def test_a_section_named_after_a_code_keeps_its_breadcrumb() -> None:
    """An error code's one-line section is exactly what somebody searches for."""
    passages = markdown("# T\n\n## Codes\n\n### ERR_A\n\nBad A.\n\n### ERR_B\n\nBad B.\n")
    assert [(p.section, p.content) for p in passages] == [
        ("Codes > ERR_A", "Bad A."),
        ("Codes > ERR_B", "Bad B."),
    ]


def test_the_breadcrumb_is_joined() -> None:
    """Outermost first."""
    assert cut(Block(BlockKind.TEXT, "x", ("A", "B")))[0].section == "A > B"


def test_a_short_tail_joins_its_neighbour() -> None:
    """No passage of five words at the end of a section."""
    passages = cut(Block(BlockKind.TEXT, sentences(23)), Block(BlockKind.TEXT, "And that is all."))
    assert len(passages) == 1


def test_endless_words_and_white_space_stay_inside_the_maximum() -> None:
    """A line without any boundary is cut between characters."""
    for text in ("x" * 50_000, "x" + " " * 50_000 + "y", "```\n" + "z" * 50_000 + "\n```", "漢" * 5_000):
        passages = cut(Block(BlockKind.CODE if text.startswith("`") else BlockKind.TEXT, text))
        assert max(estimate_tokens(p.content) for p in passages) <= LIMIT


DENSE = {
    "numbers": "\n".join(f"{n * 7919} {n * 104729} {n * 1299709}" for n in range(300)),
    "emoji": "😀🚀🐍 " * 500,
    "rare characters": "魑魅魍魉饕餮貔貅" * 200,
    "Thai": "การเชื่อมต่อฐานข้อมูลล้มเหลวกรุณาตรวจสอบการตั้งค่าเครือข่าย " * 40,
    "Korean": "데이터베이스 연결 풀이 고갈되면 서비스는 오류를 반환합니다. " * 60,
    "capitals": "MAX_HTTP_URI_LENGTH | SSL_OP_NO_RENEGOTIATION " * 100,
    "digits in words": " ".join(f"a{n}b{n * 31 % 97}c{n * 17 % 89}" for n in range(600)),
}


@pytest.mark.parametrize("text", DENSE.values(), ids=DENSE)
@pytest.mark.parametrize("kind", [BlockKind.TEXT, BlockKind.CODE, BlockKind.LIST, BlockKind.TABLE])
def test_a_passage_is_never_longer_for_the_embedder_than_the_maximum(kind: BlockKind, text: str) -> None:
    """Its own tokenizer counts where the estimate may be wrong; nothing is lost by cutting again."""
    match kind:
        case BlockKind.TABLE:
            rows = tuple((str(n), line) for n, line in enumerate(text.split("\n")))
            block = Block(kind, "", columns=("number", "what it says"), rows=rows)
        case BlockKind.LIST:
            block = Block(kind, "\n".join(f"- {line}" for line in text.split("\n")))
        case BlockKind.CODE:
            block = Block(kind, f"```\n{text}\n```")
        case _:
            block = Block(kind, text)
    passages = cut(block)
    assert max(count_tokens(passage.content) for passage in passages) <= LIMIT
    everything = letters("".join(passage.content for passage in passages))
    assert not Counter(letters(text)) - Counter(everything)


def test_small_pieces_are_not_packed_beyond_the_maximum() -> None:
    """Each fits well, and so does their estimate together; their tokens don't."""
    pieces = [f"{n} " + "8675309 " * 18 for n in range(12)]
    assert sum(map(estimate_tokens, pieces[:5])) < LIMIT < sum(map(count_tokens, pieces[:5]))
    passages = cut(*(Block(BlockKind.TEXT, piece) for piece in pieces))
    assert max(count_tokens(passage.content) for passage in passages) <= LIMIT


def test_the_quick_look_misses_no_long_text() -> None:
    """What isn't counted has few tokens; the bound holds for every kind of text it was measured on."""
    for text in DENSE.values():
        for size in range(40, len(text), 397):
            piece = text[:size]
            if most_tokens([piece], LIMIT) == 0:
                assert count_tokens(piece) <= LIMIT


def test_each_part_of_a_long_function_begins_with_its_signature() -> None:
    """A part of a function says of which."""
    body = "\n".join(f"    total = total + weigh(item, {n})" for n in range(120))
    code = f"```python\ndef price(item):\n{body}\n```"
    first, *others = cut(Block(BlockKind.CODE, code, ("price",), lead="def price(item):"))
    assert first.content.startswith("```python\ndef price(item):\n    total")
    assert others
    for passage in others:
        assert passage.content.startswith("```python\ndef price(item):\n…\n    total")
        assert estimate_tokens(passage.content) <= LIMIT


def test_an_endless_line_of_code_is_cut_at_its_marks() -> None:
    """Between names rather than inside one."""
    names = [f"Option{'Abcdefghijklmnopq'[: n % 17]}{n}" for n in range(300)]
    passages = cut(Block(BlockKind.CODE, "```ts\n" + "|".join(names) + "\n```"))
    assert len(passages) > 2
    everything = "\n".join(passage.content for passage in passages)
    assert all(re.search(rf"\b{name}\b", everything) for name in names)


WORDS = st.sampled_from(
    [
        "alpha",
        "beta.",
        "Gamma!",
        "(delta)",
        "ERR_POOL_1",
        "v1.2.3",
        "超时。",
        "重试；",
        "错误",
        "😀",
        "a:",
        "é?",
    ]
)
PROSE = st.lists(WORDS, min_size=1, max_size=600).map(" ".join)
CELLS = st.lists(WORDS, max_size=12).map(" ".join)
SECTION = st.sampled_from([(), ("A",), ("A", "B"), ("A", "C"), ("D",)])
TEXT_BLOCKS = st.builds(Block, st.sampled_from([BlockKind.TEXT, BlockKind.QA]), PROSE, SECTION)
LISTS = st.lists(PROSE, min_size=1, max_size=6).map(lambda items: "\n".join(f"- {item}" for item in items))
LIST_BLOCKS = st.builds(Block, st.just(BlockKind.LIST), LISTS, SECTION)
CODE_LINES = st.lists(
    st.sampled_from(["", "    indented = 1", "\t" * 7 + "x" * 9, "x" * 90, "call()"]),
    min_size=1,
    max_size=200,
)
CODE_BLOCKS = CODE_LINES.map(
    lambda lines: Block(BlockKind.CODE, "```py\n" + "\n".join(["start", *lines, "end"]) + "\n```", ("A",))
)
TABLE_BLOCKS = st.builds(
    lambda columns, rows: Block(BlockKind.TABLE, "", ("D",), columns=tuple(columns), rows=tuple(rows)),
    st.lists(CELLS.filter(bool), min_size=2, max_size=8),
    st.lists(st.lists(CELLS, min_size=2, max_size=8).map(tuple), min_size=1, max_size=30),
)
DOCUMENTS = st.lists(st.one_of(TEXT_BLOCKS, LIST_BLOCKS, CODE_BLOCKS, TABLE_BLOCKS), min_size=1, max_size=6)


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(DOCUMENTS)
def test_no_character_is_lost_and_no_passage_is_too_long(blocks: list[Block]) -> None:
    """Counting characters: what repeats (names, fences, lead-ins) only adds. Twice gives the same."""
    passages = cut(*blocks)
    assert passages == cut(*blocks)
    had: Counter[str] = Counter()
    for block in blocks:
        had.update(letters(block.text + "".join(block.columns) + "".join(map("".join, block.rows))))
    has = Counter(letters("".join(p.content for p in passages)))
    assert not had - has
    assert all(p.content.strip() for p in passages)
    assert max(estimate_tokens(p.content) for p in passages) <= LIMIT
    assert most_tokens([p.content for p in passages], LIMIT) <= LIMIT


@settings(max_examples=40, derandomize=True, deadline=None, database=None)
@given(PROSE)
def test_prose_is_cut_without_loss_or_overlap(text: str) -> None:
    """The parts in order are the text, white space aside."""
    assert letters("".join(p.content for p in cut(Block(BlockKind.TEXT, text)))) == letters(text)


@settings(max_examples=40, derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(st.sampled_from(["", "# ", "## ", "### ", "- ", "> ", "1. "]), PROSE), max_size=12))
def test_markdown_loses_no_word(lines: list[tuple[str, str]]) -> None:
    """Each word of the source is in the title, a breadcrumb or a passage."""
    source = "\n\n".join(["opening words", *(prefix + words[:900] for prefix, words in lines)])
    built = build_document("opening.md", "", source.encode())
    everything = letters(built.title + "".join(p.section + p.content for p in built.passages))
    assert built == build_document("opening.md", "", source.encode())
    for word in source.split():
        if any(char.isalpha() for char in word):
            assert word in everything
