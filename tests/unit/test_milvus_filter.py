"""The forced filter and the encoding of terms, read back by the store's own grammar and analyzer."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from milvus_lite.analyzer import StandardAnalyzer
from milvus_lite.search.filter import ast, parse_expr

from gateway.adapters.milvus.filter import checked_hit, chunk_filter, literal, number, scope_filter
from gateway.adapters.milvus.rows import word_of, words_of
from gateway.errors import InvalidField, UnscopedAccess
from tests.contract.vector_world import HOSTILE, REFUSED, chunk, query, without_classes

_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def _clauses(node: Any) -> list[Any]:
    """The operands of a conjunction; anything but ``and`` counts as one."""
    if isinstance(node, ast.And):
        return [clause for operand in node.operands for clause in _clauses(operand)]
    return [node]


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_name_is_one_literal(name: str) -> None:
    """The grammar reads back exactly the name, and nothing after it."""
    [clause] = _clauses(parse_expr(f"tenant_id == {literal(name)}"))
    assert clause.right.value == name


@settings(max_examples=300, derandomize=True, database=None)
@given(_text)
def test_any_text_is_one_literal(name: str) -> None:
    """The same for whatever text there is."""
    [clause] = _clauses(parse_expr(f"tenant_id == {literal(name)}"))
    assert clause.right.value == name


@pytest.mark.parametrize("value", [*REFUSED.values(), None, 7, b"bytes", ["list"]])
def test_what_is_no_plain_text_is_no_literal(value: object) -> None:
    """NUL, lone surrogates and other types are refused, not repaired."""
    with pytest.raises(InvalidField):
        literal(value)


@pytest.mark.parametrize("value", [True, "1", 1.0, None, "1] or acl_class in [2"])
def test_what_is_no_whole_number_is_no_number(value: object) -> None:
    """Numbers are checked, since they aren't quoted."""
    with pytest.raises(UnscopedAccess):
        number(value, "acl_class")


@settings(max_examples=100, derandomize=True, database=None)
@given(_text.filter(bool), _text.filter(bool), _text.filter(bool), _text)
def test_a_filter_is_a_conjunction_of_every_clause(
    tenant: str, kb: str, revision: str, category: str
) -> None:
    """Whatever the names, the whole expression is these nine clauses joined by ``and``."""
    asked = query(tenant, kb, revision, classes=(3, 1), at=42, category=category)
    clauses = _clauses(parse_expr(scope_filter(asked)))
    fields = [(clause.field if isinstance(clause, ast.InOp) else clause.left).name for clause in clauses]
    assert fields == [
        *("tenant_id", "kb_id", "kb_revision", "embedding_space_id"),
        *("acl_class", "valid_from", "valid_until", "category"),
    ]
    texts = [clauses[i].right.value for i in (0, 1, 2, 3, 7)]
    assert texts == [tenant, kb, revision, asked.release.space.space_id, category]
    assert [element.value for element in clauses[4].values.elements] == [1, 3]
    assert [(clauses[i].op, clauses[i].right.value) for i in (5, 6)] == [("<=", 42), (">", 42)]


def test_chunk_ids_go_in_as_hashes() -> None:
    """What a caller asks for by id never stands in the expression itself."""
    expression = chunk_filter(query(), [HOSTILE["injection"]])
    assert expression.startswith(scope_filter(query()) + " and row_id in [")
    assert " or " not in expression


@pytest.mark.parametrize(
    "broken",
    [
        without_classes(query()),
        replace(query(), at=True),
        replace(query(), at="0 or 1 == 1"),  # type: ignore[arg-type]  # what a careless caller might do
        query(revision=""),
    ],
    ids=["no class", "bool time", "text as time", "no revision"],
)
def test_a_filter_that_lacks_a_part_is_not_built(broken: Any) -> None:
    """A missing or mistyped part is an error, never a shorter filter."""
    with pytest.raises(UnscopedAccess):
        scope_filter(broken)


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": "other"},
        {"kb_id": "other"},
        {"kb_revision": "other"},
        {"embedding_space_id": "other"},
        {"acl_class": 2},
        {"acl_class": 0},
        {"valid_from": 2000},
        {"valid_until": 1000},
        {"category": "other"},
    ],
    ids=lambda changes: str(changes),
)
def test_a_row_outside_the_scope_is_an_error_even_if_the_store_returns_it(changes: dict[str, Any]) -> None:
    """The second fence: one field off is enough."""
    asked = query(category="faq")
    inside = chunk(category="faq")
    assert checked_hit(asked, inside) is inside
    with pytest.raises(UnscopedAccess):
        checked_hit(asked, chunk(**({"category": "faq"} | changes)))


@pytest.mark.parametrize(
    ("term", "word"),
    [
        ("password", "password"),
        ("404", "404"),
        ("xml", "x786d6c"),
        ("知识", "xe79fa5e8af86"),
        ("a-b", "x612d62"),
    ],
)
def test_terms_become_ascii_words(term: str, word: str) -> None:
    """Plain words stay readable; others are spelt in hex."""
    assert word_of(term) == word


@settings(max_examples=300, derandomize=True, database=None)
@given(st.lists(_text.filter(bool), min_size=1, max_size=5))
def test_the_analyzer_keeps_each_term_whole_and_apart(terms: list[str]) -> None:
    """As many words come out as terms go in, and different terms stay different."""
    words = StandardAnalyzer().tokenize(words_of(terms))
    assert len(words) == len(terms)
    assert len(set(words)) == len(set(terms))
