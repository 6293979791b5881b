"""Sought: what a question asks for, and which sentences have it."""

import pytest

from gateway.adapters.embedded.sought import sought_by


@pytest.mark.parametrize(
    ("question", "has", "lacks"),
    [
        ("How many days does a refund take?", "It takes five days.", "It takes a while."),
        ("What percentage of the fee is kept?", "We keep 10% of it.", "We keep a part of it."),
        ("退款需要几天？", "退款在14天内完成。", "退款很快就会完成。"),
        ("When was the depot opened?", "It opened in May.", "It opened after the strike."),
        ("When is a refund paid?", "Within two weeks.", "After the return."),
        ("仓库是什么时候开业的？", "仓库于1998年开业。", "仓库已经开业。"),
        ("Who runs the depot?", "It is run by Maria Okafor.", "It is run by the council."),
        ("Where is the depot?", "The depot is in Porto.", "The depot is by the river."),
    ],
)
def test_a_sentence_has_what_is_asked_for_or_not(question: str, has: str, lacks: str) -> None:
    """An amount, a time or a name, in English and Chinese."""
    sought = sought_by(question)
    assert (sought(has), sought(lacks)) == (True, False)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How many of the 12 bicycles are red?", "There are 12 bicycles."),
        ("When was the strike of 1998?", "The strike was in 1998."),
        ("Who is Maria Okafor?", "We asked Maria Okafor."),
    ],
)
def test_what_the_question_names_itself_is_not_what_it_asks_for(question: str, text: str) -> None:
    """It stands in every sentence about it."""
    assert not sought_by(question)(text)


@pytest.mark.parametrize(
    "question", ["Why is a refund refused?", "When a part breaks, what is to be done?", "几乎没有退款吗？"]
)
def test_a_question_for_something_else_finds_it_nowhere(question: str) -> None:
    """A reason has no form of its own."""
    assert not sought_by(question)("Maria Okafor repaired 12 bicycles in May 1998，花了14天。")


@pytest.mark.parametrize(
    "start", ["Depots close early.", 'They said "Depots close early".', "It rains. Depots close."]
)
def test_the_first_word_of_a_sentence_or_quotation_is_no_name(start: str) -> None:
    """Its capital says nothing."""
    assert not sought_by("Who decides that?")(start)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("When can employees take leave?", "Employees may take leave; an ad is shown for a second."),
        ("When does it fail?", "It fails with error 404 on port 8080."),
        ("怎么开启多重身份验证？", "需要14天。"),
        ("许多长期合同怎么续签？", "需要14天。"),
        ("任何时候都可以退款吗？", "14天内可以。"),
    ],
)
def test_what_only_looks_like_a_time_or_an_amount_is_none(question: str, text: str) -> None:
    """Words that are months in capitals, numbers of errors, parts of longer Chinese words."""
    assert not sought_by(question)(text)


@pytest.mark.parametrize("many", [" ", "1", "十", ",", "A", "1,", "$"])
def test_hostile_text_takes_no_longer_than_any_other(many: str) -> None:
    """Reading a long run of anything is linear: a quadratic pattern would take many minutes here."""
    text = f"retries {many * 200_000} = 5"
    for question in ("How many retries?", "When was it?", "Who was it?"):
        assert isinstance(sought_by(question)(text), bool)
