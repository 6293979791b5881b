"""HTML: the content's structure comes out, the page's furniture does not."""

import pytest

from gateway.ingest.document import Block, BlockKind
from gateway.ingest.parsing.html import parse_html


def blocks(body: str) -> tuple[Block, ...]:
    return parse_html(f"<!DOCTYPE html><html><body>{body}</body></html>", "a.html").blocks


def texts(body: str) -> list[str]:
    return [block.text for block in blocks(body)]


def test_the_main_content_wins_over_the_page_around_it() -> None:
    """Header, navigation, footer, scripts and hidden parts vanish; entities are decoded."""
    document = parse_html(
        """<html><head><title>Limits - Site</title><style>p{}</style></head><body>
        <header><h1>Site</h1></header><nav>Home</nav>
        <main><header><h1>Limits<a class="headerlink" href="#limits">¶</a></h1><p>By Ann</p></header>
        <p>At most 5 &lt; 6&nbsp;MB.<script>track()</script></p><p hidden>secret</p>
        <p style="display: none">secret</p><aside>Ad</aside><noscript>no</noscript>
        <h2>Per user <a href="#u">#</a></h2><p>One.</p></main><footer>(c)</footer></body></html>""",
        "a.html",
    )
    assert document.title == "Limits"
    assert [(b.section, b.text) for b in document.blocks] == [
        ((), "At most 5 < 6\xa0MB."),
        (("Per user",), "One."),
    ]


def test_a_site_name_outside_the_content_is_not_the_title() -> None:
    """Without an h1 in the content the page's title element says more than the site's h1."""
    page = (
        "<title>Rules - Book</title><body><header><h1>Book</h1></header><main><h2>Rules</h2><p>x</p></main>"
    )
    assert parse_html(page, "a.html").title == "Rules - Book"


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("<h1>One</h1><p>x</p>", "One"),
        ("<title> Two\n words </title><p>x</p>", "Two words"),
        ("<p>x</p>", "Some page"),
    ],
)
def test_the_title_has_fallbacks(page: str, title: str) -> None:
    """h1, title element, file name."""
    assert parse_html(page, "some_page.html").title == title


def test_code_stays_whole_with_its_language() -> None:
    """Highlighting tags and copy buttons go, lines and indentation stay."""
    code = (
        '<div class="highlight-python3"><pre><button>Copy</button><span class="k">def</span> f():\n'
        "    return 1 &lt; 2\n\n# done\n</pre></div>"
    )
    assert blocks(code) == (Block(BlockKind.CODE, "```python3\ndef f():\n    return 1 < 2\n\n# done\n```"),)
    assert texts('<pre><code class="language-sh">a ``` b</code></pre>') == ["````sh\na ``` b\n````"]


def test_a_table_has_its_header_row_and_spans_are_resolved() -> None:
    """Grouped heads make one name a column; a cell that spans rows is repeated below."""
    table = """<table><caption>Prices</caption><thead>
      <tr><th rowspan=2>Plan</th><th colspan=2>Price</th></tr><tr><th>month</th><th>year</th></tr></thead>
      <tbody><tr><td rowspan=2>Pro</td><td>5</td><td>50</td></tr><tr><td>6</td><td>60</td></tr></table>"""
    assert blocks(table) == (
        Block(BlockKind.TEXT, "Prices"),
        Block(
            BlockKind.TABLE,
            "",
            columns=("Plan", "Price month", "Price year"),
            rows=(("Pro", "5", "50"), ("Pro", "6", "60")),
        ),
    )


def test_a_bold_first_row_names_the_columns_and_a_layout_table_is_no_table() -> None:
    """Word processors mark column names with bold text; old pages lay out text in tables."""
    bold = "<table><tr><td><b>K</b></td><td><b>V</b></td></tr><tr><td>a</td><td>1</td></tr></table>"
    assert blocks(bold) == (Block(BlockKind.TABLE, "", columns=("K", "V"), rows=(("a", "1"),)),)
    layout = "<table><tr><td class=linenos><pre>1</pre></td><td><pre>make</pre></td></tr></table>"
    assert texts(layout) == ["```\n1\n```", "```\nmake\n```"]
    assert texts("<table><tr><td><p>One</p><p>Two</p></td></tr></table>") == ["One", "Two"]


def test_lists_nest_and_number() -> None:
    """Nested lists, code and a start number survive; a list of links into the page is furniture."""
    body = "<ol start=3><li>Stop<ul><li>gently</li></ul><pre>kill 1</pre></li><li><p>Start</p></li></ol>"
    assert texts(body) == ["3. Stop\n   - gently\n   ```\n   kill 1\n   ```\n4. Start"]
    assert texts("<ul><li><a href=#a>A</a><li><a href=#b>B</a><li><a href=#c>C</a></ul><p>x</p>") == ["x"]
    assert texts("<ul><li><a href=a>A</a><li><a href=b>B</a><li><a href=c>C</a></ul>") == ["- A\n- B\n- C"]


def test_definitions_become_a_list_and_long_ones_stay_apart() -> None:
    """Terms stand with what defines them; a definition with blocks inside keeps them."""
    body = (
        """<dl><dt>TTL</dt><dd>Time to live.</dd><dt>run()</dt><dd><p>Runs.</p><pre>run()</pre></dd></dl>"""
    )
    assert texts(body) == ["- TTL: Time to live.", "run()", "Runs.", "```\nrun()\n```"]


def test_questions_in_definitions_and_details_pair_with_answers() -> None:
    """FAQ pages use both."""
    body = (
        "<h2>FAQ</h2><dl><dt>Why?</dt><dd>Because.</dd></dl><details><summary>How?</summary>Slowly.</details>"
    )
    assert blocks(body) == (
        Block(BlockKind.QA, "Why?\nBecause.", ("FAQ",)),
        Block(BlockKind.QA, "How?\nSlowly.", ("FAQ",)),
    )


def test_breaks_inline_code_and_alt_texts_are_kept() -> None:
    """A br is a line end; code gets backticks; an image is its alt text."""
    assert texts("<p>a<br>b <code>x_y</code> <img alt='chart'> <em>c</em>d</p>") == ["a\nb `x_y` chart cd"]


def test_a_page_that_is_one_form_is_read() -> None:
    """Some sites wrap everything in a form; a search box on a normal page stays out."""
    assert texts("<form><p>Everything</p></form>") == ["Everything"]
    assert texts("<p>Text</p><form><label>Search</label></form>") == ["Text"]


@pytest.mark.parametrize(
    "body",
    [
        "<div>" * 5_000 + "deep",
        "<b>" * 5_000 + "deep",
        "<ul><li>" * 2_000 + "deep",
        "<blockquote><p>" * 2_000 + "deep",
        "<table><tr><td>" * 1_000 + "deep",
        "<dl><dd>" * 2_000 + "deep",
        "<table><tr><td colspan=999999 rowspan=999999>deep<td>x</table>",
    ],
)
def test_hostile_nesting_keeps_the_text(body: str) -> None:
    """Thousands of open elements neither exhaust the stack nor lose the word inside."""
    assert "deep" in str(blocks(body))
