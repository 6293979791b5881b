"""Source code: a block for each function, in its classes, with its comments, and nothing lost."""

import contextlib
import re
from collections.abc import Mapping

import pytest

from gateway.errors import DocumentRejected
from gateway.ingest.building import build_document
from gateway.ingest.document import Block
from gateway.ingest.parsing import parse
from tests.unit.code_samples import SAMPLES, lines


def blocks(source: str, text: str) -> Mapping[tuple[str, ...], Block]:
    document = parse(source, "", text.encode())
    assert len({block.section for block in document.blocks}) == len(document.blocks)
    return {block.section: block for block in document.blocks}


PYTHON = f'''"""Prices."""

import os

LIMIT = 3

# Weighs an item.
# In grams.
@cached
def weigh(item, scale):
    """Twice, to be sure."""
    # not a heading
{lines("check")}

class Shop(Base):
    """Sells things."""

    open = True

    def sell(self, item):
{lines("self.take")}

    @property
    def stock(self):
        """What is left."""
{lines("self.count")}

if __name__ == "__main__":
    weigh(1, 2)
'''


def test_functions_and_methods_stand_under_their_classes() -> None:
    """Imports, constants and the main part are together; decorators and comments belong to their function."""
    found = blocks("shop/prices.py", PYTHON)
    assert list(found) == [(), ("weigh",), ("Shop",), ("Shop", "sell"), ("Shop", "stock")]
    assert "import os\n\nLIMIT = 3" in found[()].text
    assert 'if __name__ == "__main__":' in found[()].text
    weigh = found[("weigh",)].text
    assert weigh.startswith("```python\n# Weighs an item.\n# In grams.\n@cached\ndef weigh(item, scale):")
    assert '"""Sells things."""\n\n    open = True' in found[("Shop",)].text
    assert found[("Shop", "stock")].text.startswith("```python\n@property\ndef stock(self):")
    assert found[("Shop", "sell")].lead == "def sell(self, item):"


def test_the_title_is_the_path() -> None:
    """Which of the many index.ts it is matters."""
    assert parse("shop/web/index.ts", "", b"export const a = 1;").title == "shop/web/index.ts"


@pytest.mark.parametrize("source", SAMPLES)
def test_each_language_is_cut_by_its_functions(source: str) -> None:
    """With the breadcrumb of what each is inside."""
    text, expected = SAMPLES[source]
    assert expected <= set(blocks(source, text))


@pytest.mark.parametrize("source", SAMPLES)
def test_no_word_of_the_source_is_lost(source: str) -> None:
    """Broken syntax, preprocessor branches and closing brackets included."""
    text, _ = SAMPLES[source]
    content = "\n".join(passage.content for passage in build_document(source, "", text.encode()).passages)
    assert set(re.findall(r"\w+", text)) <= set(re.findall(r"\w+", content))
    for bracket in "{}()[]":
        assert content.count(bracket) >= text.count(bracket)


@pytest.mark.parametrize("source", ["a.sh", "a.py", "a.rb", "a.yaml"])
def test_a_comment_is_never_a_heading(source: str) -> None:
    """Whatever it looks like."""
    built = build_document(source, "", b"# Title\n## Part\necho 1\n# Other\necho 2\n")
    assert [passage.section for passage in built.passages] == [""]


def test_small_functions_stay_with_their_surroundings() -> None:
    """Fifty getters are no fifty passages."""
    text = "class A {\n" + "".join(f"  get{n}() {{ return {n}; }}\n" for n in range(50)) + "}\n"
    built = build_document("a.js", "", text.encode())
    assert len(built.passages) < 6
    assert all("class A" in passage.content for passage in built.passages)


def test_an_endless_function_is_cut_under_its_signature() -> None:
    """Each part says of which function it is."""
    text = "def price(item, scale):\n" + "\n".join(
        f"    total = total + weigh(item, {n})" for n in range(200)
    )
    passages = build_document("a.py", "", text.encode()).passages
    assert len(passages) > 3
    for passage in passages:
        assert passage.section == "price"
        assert passage.content.startswith("```python\ndef price(item, scale):\n")


def test_json_in_one_line_is_laid_out() -> None:
    """So that it can be cut where it means something; broken JSON stays as it is."""
    text = '{"name": "shop", "goods": [' + ", ".join(f'{{"id": {n}}}' for n in range(60)) + "]}"
    [block] = parse("a.json", "", text.encode()).blocks
    assert '\n "name": "shop",\n' in block.text
    [broken] = parse("a.json", "", (text + "}").encode()).blocks
    assert text in broken.text


def test_minified_code_is_refused() -> None:
    """It would be thousands of passages that nobody can read."""
    with pytest.raises(DocumentRejected) as caught:
        parse("a.min.js", "", ("function f(a){return a+1};" * 4000).encode())
    assert caught.value.reason == "too_complex"
    assert "minified" in caught.value.detail


@pytest.mark.parametrize(
    "text",
    ["(" * 20_000, "{" * 20_000 + "}" * 20_000, "class A {\n" * 3_000, "#if A\n" * 3_000, "if x:\n " * 3_000],
    ids=["parentheses", "braces", "classes", "branches", "ifs"],
)
@pytest.mark.parametrize("source", ["a.py", "a.cpp", "a.java"])
def test_hostile_nesting_is_read_or_refused(source: str, text: str) -> None:
    """Never a crash."""
    with contextlib.suppress(DocumentRejected):
        assert parse(source, "", ("x = 1\n" + text).encode()).blocks
