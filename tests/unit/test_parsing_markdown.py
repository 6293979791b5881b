"""Markdown: structure is kept, markup goes, and nothing in a code fence is mistaken for structure."""

import pytest

from gateway.errors import DocumentRejected
from gateway.ingest.document import Block, BlockKind, ParsedDocument
from gateway.ingest.parsing.markdown import parse_markdown


def read(text: str, source: str = "a.md") -> ParsedDocument:
    return parse_markdown(text, source)


def kinds(document: ParsedDocument) -> list[tuple[BlockKind, tuple[str, ...]]]:
    return [(block.kind, block.section) for block in document.blocks]


def test_a_comment_in_a_fenced_shell_script_is_no_heading() -> None:
    """The fence stays whole with its language and the next section keeps its own breadcrumb."""
    document = read(
        "# Setup\n\n## Install\n\n```bash\n# not a heading\nmake\n\n## nor this\n```\n\n## Run\n\nGo.\n"
    )
    assert document.blocks == (
        Block(BlockKind.CODE, "```bash\n# not a heading\nmake\n\n## nor this\n```", ("Install",)),
        Block(BlockKind.TEXT, "Go.", ("Run",)),
    )


def test_atx_and_setext_headings_make_the_breadcrumb() -> None:
    """Both heading styles nest, and a skipped level does not confuse them."""
    document = read("Guide\n=====\n\nIntro\n\nPart\n----\n\n#### Deep ####\n\ntext\n\n## Next\n\nmore\n")
    assert document.title == "Guide"
    assert [block.section for block in document.blocks] == [(), ("Part", "Deep"), ("Next",)]


def test_several_top_headings_all_stay_in_the_breadcrumb() -> None:
    """Only a lone h1 that is the title is left out."""
    document = read("# One\n\na\n\n# Two\n\nb\n")
    assert document.title == "One"
    assert [block.section for block in document.blocks] == [("One",), ("Two",)]


def test_front_matter_gives_the_title_and_vanishes() -> None:
    """A title that differs from the h1 leaves the h1 in the breadcrumb."""
    document = read('---\ntitle: "Real title"\ntags:\n  - a\n---\n# Other\n\ntext\n')
    assert document.title == "Real title"
    assert document.blocks == (Block(BlockKind.TEXT, "text", ("Other",)),)


def test_a_rule_at_the_top_is_not_front_matter() -> None:
    """Prose between two rules stays."""
    document = read("---\nHello there, reader\n\n---\nmore\n")
    assert [block.text for block in document.blocks] == ["Hello there, reader", "more"]


def test_a_table_has_columns_and_rows() -> None:
    """Cells lose their markup, escaped pipes stay characters."""
    document = read("| **Code** | Meaning |\n|---|:-:|\n| `E1` | a \\| b |\n| [E2](x) | |\n")
    assert document.blocks == (
        Block(BlockKind.TABLE, "", columns=("Code", "Meaning"), rows=(("`E1`", "a | b"), ("E2", ""))),
    )


def test_nested_lists_keep_their_shape_and_their_code() -> None:
    """Numbers, nesting and a fence inside an item survive."""
    text = "3. Stop\n   - gently\n\n     ```sh\n     # stop\n     kill 1\n     ```\n4. Start\n"
    assert read(text).blocks == (
        Block(
            BlockKind.LIST, "3. Stop\n   - gently\n     ```sh\n     # stop\n     kill 1\n     ```\n4. Start"
        ),
    )


def test_inline_markup_goes_and_its_text_stays() -> None:
    """Links keep their text, images their alt text, code its backticks, comments nothing."""
    document = read(
        "A **bold** ~~old~~ [link](rel/path.md), ![a chart](c.png), <kbd>Ctrl</kbd> &amp; `x_y`."
        "<!-- no -->\n\n<!-- no\n\nno -->\n"
    )
    assert [block.text for block in document.blocks] == ["A bold old link, a chart, Ctrl & `x_y`."]


def test_html_blocks_are_read_as_html() -> None:
    """A heading, a table and a details element written as HTML count like Markdown's own."""
    document = read(
        '<h1 align="center">Tool</h1>\n\n'
        "<table><tr><th>K</th><th>V</th></tr><tr><td>a</td><td>1</td></tr></table>\n"
    )
    assert document.title == "Tool"
    assert document.blocks == (Block(BlockKind.TABLE, "", columns=("K", "V"), rows=(("a", "1"),)),)


def test_wrapped_lines_join_without_a_gap_in_chinese() -> None:
    """A soft break is a space between words and nothing between Chinese characters."""
    assert [b.text for b in read("one\ntwo\n\n第一行\n第二行\n").blocks] == ["one two", "第一行第二行"]


def test_quotes_and_indented_code_are_kept() -> None:
    """A quote's text and code inside it stay; indented code gets fence lines."""
    document = read("> Careful:\n>\n> ```\n> rm x\n> ```\n\n    make\n    test\n")
    assert [(b.kind, b.text) for b in document.blocks] == [
        (BlockKind.TEXT, "Careful:"),
        (BlockKind.CODE, "```\nrm x\n```"),
        (BlockKind.CODE, "```\nmake\ntest\n```"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# FAQ\n\n## Support\n\n### How do I reset?\n\nClick it.\n\n- twice\n\n### Why?\n\nBecause.\n",
        "# FAQ\n\n## Support\n\n**How do I reset?**\n\nClick it.\n\n- twice\n\n**Why?**\n\nBecause.\n",
        "# FAQ\n\n## Support\n\n**How do I reset?**\nClick it.\n\n- twice\n\n**Why?**\nBecause.\n",
    ],
)
def test_a_question_and_its_answer_are_one_block(text: str) -> None:
    """Questions as headings or as bold lines give the same pairs under their section."""
    assert read(text).blocks == (
        Block(BlockKind.QA, "How do I reset?\nClick it.\n\n- twice", ("Support",)),
        Block(BlockKind.QA, "Why?\nBecause.", ("Support",)),
    )


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Q: How long?\nA: Two\ndays.\n\nQ: And?\n\nA: No.\n", "Q: How long?\nA: Two days."),
        ("**Q:** How long?\n\n**A:** Two days.\n\n**Q:** And?\n\n**A:** No.\n", "Q: How long?\nA: Two days."),
        ("问：多久？\n答：两天。\n\n问：还有呢？\n答：没有。\n", "问：多久？\n答：两天。"),
    ],
)
def test_marked_questions_pair_with_marked_answers(text: str, first: str) -> None:
    """Q:/A: and 问：/答： pairs are whole, wrapped lines inside them joined."""
    document = read(text)
    assert [block.kind for block in document.blocks] == [BlockKind.QA, BlockKind.QA]
    assert document.blocks[0].text == first


def test_a_long_answer_stays_a_section_under_its_question() -> None:
    """A question with pages of answer is a heading like any other."""
    document = read("# T\n\n## Why?\n\n" + "Because it is so. " * 200)
    assert kinds(document) == [(BlockKind.TEXT, ("Why?",))]


def test_a_heading_without_text_below_is_not_lost() -> None:
    """An empty section's heading becomes text of its parent; an endless heading also stays whole."""
    document = read("# T\n\n## A\n\n### Empty\n\n## B " + "x" * 400 + "\n\ntext\n")
    assert document.blocks[0] == Block(BlockKind.TEXT, "Empty", ("A",))
    assert document.blocks[1].text == "B " + "x" * 400
    assert len(document.blocks[2].section[0]) == 160


@pytest.mark.parametrize("text", [">" * 10_000 + " x", "".join("  " * n + "- a\n" for n in range(40))])
def test_nesting_beyond_reason_is_refused_not_cut(text: str) -> None:
    """The library would drop deeper content without a word."""
    with pytest.raises(DocumentRejected) as caught:
        read(text)
    assert caught.value.reason == "too_complex"


@pytest.mark.parametrize("text", ["[" * 10_000, "[a](" * 5_000, "*a_" * 3_000, "<" * 10_000])
def test_hostile_inline_markup_stays_text(text: str) -> None:
    """Ten thousand open brackets are read in time and kept."""
    assert sum(len(block.text) for block in read(text).blocks) == len(text)


def test_links_are_read_in_a_paragraph_with_a_few_open_brackets() -> None:
    """Half-open intervals, footnotes and pictures in links are written with them."""
    (block,) = read("[0, 1) and [1, 2) [^1]; [![logo](a.png)](b.html) [[*here*](c)] " + "[x](y) " * 99).blocks
    assert block.text.startswith("[0, 1) and [1, 2) [^1]; logo [here] x x")
    assert "(" not in block.text.split("[^1]", 1)[1]


def test_a_paragraph_with_very_many_open_brackets_keeps_every_word() -> None:
    """It only loses its links, and the next one loses nothing."""
    first, second = read("[" * 40 + "[*one*](two) `three[` ![four](five)\n\n[six](seven)\n").blocks
    assert first.text == "[" * 40 + "[one](two) `three[` ![four](five)"
    assert second.text == "six"
