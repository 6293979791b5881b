"""Every sample question on the real demo: the right document is cited, or the answer is refused."""

import pytest

from gateway.samples import SampleQuestion, load_samples
from tests.acceptance.conftest import Answer, Demo

SAMPLES = load_samples()
ANSWERED = [q for q in SAMPLES.questions if q.expect == "ANSWERED"]
REFUSED = [q for q in SAMPLES.questions if q.expect == "REFUSED_NO_EVIDENCE"]
#: the share of extractive answers that hold the expected words (citing the document is required of all)
LITERAL_SHARE = 0.85
FIRST_CITATIONS = 3


def question_id(question: SampleQuestion) -> str:
    return f"{question.user}: {question.question}"


def asked(demo: Demo, question: SampleQuestion) -> Answer:
    answer = demo.ask(demo.tokens[question.user], question.question)
    assert answer.status == 200, answer.problem
    return answer


def source_of(question: SampleQuestion) -> str:
    return next(d.source for d in SAMPLES.documents if d.path == question.document)


@pytest.mark.parametrize("question", ANSWERED, ids=question_id)
def test_an_answerable_question_cites_its_document(demo: Demo, question: SampleQuestion) -> None:
    """One model call; the expected document is among the first citations, and each of them is real."""
    before = demo.model_calls
    answer = asked(demo, question)
    done = answer.done
    assert (done["status"], done["reasons"]) == ("ANSWERED", [])
    assert demo.model_calls == before + 1
    cited = [citation["uri"] for citation in done["citations"]]
    assert source_of(question) in cited[:FIRST_CITATIONS], f"cited {cited}: {answer.text}"
    sources = {source["n"]: source for source in answer.meta["sources"]}
    for citation in done["citations"]:
        assert f"[{citation['n']}]" in answer.text
        assert citation["document_id"] == sources[citation["n"]]["document_id"]
        assert citation["supported"]
        assert citation["quote"]


def test_what_the_vector_store_is_asked_is_counted(demo: Demo) -> None:
    """By vector and by words, at least; which calls several questions share shows there and nowhere else."""
    before = demo.metric("gateway_search_questions_sum")
    demo.ask(demo.tokens["bob"], "Which searches has nobody counted so far?")
    assert demo.metric("gateway_search_questions_sum") >= before + 2


@pytest.mark.parametrize("question", REFUSED, ids=question_id)
def test_a_question_without_evidence_is_refused_before_any_model(
    demo: Demo, question: SampleQuestion
) -> None:
    """No text, no source, no model call, and a reason."""
    before = demo.model_calls
    answer = asked(demo, question)
    done = answer.done
    assert done["status"] == "REFUSED_NO_EVIDENCE", answer.text
    assert done["reasons"]
    assert demo.model_calls == before
    assert [event.name for event in answer.events] == ["meta", "done"]
    assert answer.meta["sources"] == []
    assert (done["citations"], done["cacheable"], done["cached"]) == ([], False, False)
    assert done["usage"] == {"input_tokens": 0, "output_tokens": 0, "estimated": False}


def test_most_answers_hold_the_expected_words(demo: Demo) -> None:
    """Extractive answers pick sentences: a few may pick the one beside it, most may not."""
    missing = []
    for question in ANSWERED:
        answer = asked(demo, question)
        if question.answer_contains not in answer.text:
            missing.append((question.question, question.answer_contains, answer.text))
    share = 1 - len(missing) / len(ANSWERED)
    assert share >= LITERAL_SHARE, f"{share:.2f}: {missing}"


HIDDEN = {q.question: q for q in ANSWERED if any(q.question == r.question for r in REFUSED)}
PAIRS = [(r, HIDDEN[r.question]) for r in REFUSED if r.question in HIDDEN]


@pytest.mark.parametrize(("refused", "answered"), PAIRS, ids=[question_id(r) for r, _ in PAIRS])
def test_not_for_you_looks_exactly_like_not_there(
    demo: Demo, refused: SampleQuestion, answered: SampleQuestion
) -> None:
    """Same events, same keys as for nonsense; nothing of the hidden document is on the wire."""
    hidden = asked(demo, refused)
    nothing = demo.ask(demo.tokens[refused.user], "zqxv wkjh blorp fnord")
    assert shape(hidden) == shape(nothing)
    assert all(word in refused.question for word in hidden.done["searched"]["missing"])
    document = next(d for d in SAMPLES.documents if d.path == answered.document)
    title = document.read().decode().splitlines()[0].removeprefix("# ").strip()
    for secret in (answered.answer_contains, document.source, title):
        assert secret.encode() not in hidden.raw


def shape(answer: Answer) -> list[tuple[str, int, dict[str, object]]]:
    """The events without what differs between any two requests: ids, times, the reason's code, the question's
    own words, and whether it was asked before.
    """
    varying = {"request_id", "trace_id", "timings", "reasons", "searched", "cached"}
    return [
        (e.name, e.sequence, {k: None if k in varying else v for k, v in e.data.items()})
        for e in answer.events
    ]


CONVERSATIONS = [
    ("bob", "What is the usual cause of ERR_CONN_RESET?", "What does ERR_FOO_999 mean?"),
    ("bob", "Which team is the owner of risk-service?", "And how long does a break-glass session last?"),
    ("dave", "Are digital goods refundable after the download?", "What is the capital of Mongolia?"),
    ("dave", "中国大陆的退货期限是几天？", "今天上海的天气怎么样？"),
]


@pytest.mark.parametrize(("user", "good", "bad"), CONVERSATIONS, ids=[bad for _, _, bad in CONVERSATIONS])
def test_a_conversation_never_stands_in_for_evidence(demo: Demo, user: str, good: str, bad: str) -> None:
    """An answer, then an unanswerable question in the same conversation: refused, without a model call."""
    token = demo.tokens[user]
    conversation = f"talk-{user}-{len(good)}"
    assert demo.ask(token, good, conversation_id=conversation).done["status"] == "ANSWERED"
    before = demo.model_calls
    for _ in range(2):
        refused = demo.ask(token, bad, conversation_id=conversation)
        assert refused.done["status"] == "REFUSED_NO_EVIDENCE", refused.text
        assert (refused.text, refused.meta["sources"]) == ("", [])
    assert demo.model_calls == before
