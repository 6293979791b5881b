"""A model that declines in its own words: what it says is shown, and never taken for an answer."""

import pytest

from gateway.answer.calls.declining import declines
from gateway.answer.calls.generation import Generated
from gateway.answer.citation import uncited
from gateway.answer.reuse.keepable import why_unkept
from gateway.stream.protocol import Usage


@pytest.mark.parametrize(
    "answer",
    [
        "The passages do not contain the answer.",
        "The provided passages do not mention the price [1].",
        "I'm sorry, but the context doesn't specify this.",
        "Unfortunately, the evidence does not explicitly state a date. Please ask the office.",
        "I cannot answer this question from the given passages.",
        "There is not enough information to tell.",
        "The answer is not found in the passages.",
        "资料中没有提到保修期。",
        "根据提供的资料，无法确定价格。",
        "抱歉，我找不到答案。",
        "所提供的文档未提及该内容[2]。",
    ],
)
def test_an_answer_that_is_none_is_recognised(answer: str) -> None:
    """Common phrasings, in both languages, with and without a citation."""
    assert declines(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "The limit is 42 MB [1].",
        "There is no fee [1].",
        "The passages do not mention a price, but the fee is 5 EUR [1].",
        "The sources do not include spare parts. The warranty is 2 years [1].",
        "I cannot find my badge: call the desk [1]. Then wait.",
        "The passages do not say when. " + "The limit is 42 MB. " * 3,
        "信息不能导出[1]。",
        "资料没有提到价格，但费用是5元[1]。",
        "没有费用[1]。",
        "",
    ],
)
def test_an_answer_that_says_something_is_left_alone(answer: str) -> None:
    """Also one that begins by what is missing, and one whose content is a "no"."""
    assert not declines(answer)


def generated(**changes: object) -> Generated:
    fields: dict[str, object] = {"text": "It is 42 [1].", "cited": (1,), "unknown_citations": 0}
    rest = {"usage": Usage(1, 1, estimated=False), "finish_reason": "stop", "no_support": False}
    return Generated(**{**fields, **rest, **changes})  # type: ignore[arg-type]  # by name


def test_only_an_answer_that_rests_on_evidence_may_be_kept() -> None:
    """Neither one that may be none nor one that cites nothing serves anybody else."""
    assert why_unkept(generated()) == ""
    assert why_unkept(generated(sure=False)) == "unsure"
    assert why_unkept(generated(cited=())) == "uncited"


@pytest.mark.parametrize(
    ("answer", "sentences"),
    [
        ("It is 42 [1].", 0),
        ("Here is what I found. It is 42 [1].", 1),
        ("It is 42 [1]. It was 41 before. Ask the office.", 2),
        ("One [1]. Two. Three [2][3].", 1),
        ("是42[1]。以前是41。", 1),
        ("", 0),
    ],
)
def test_sentences_without_a_citation_are_counted(answer: str, sentences: int) -> None:
    """A marker stands for the sentence before it alone."""
    assert uncited(answer) == sentences
