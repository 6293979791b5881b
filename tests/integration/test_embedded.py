"""The bundled embedder and the extractive answers, on the real weights; and their twins."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from eval.gate import report
from gateway.adapters.embedded.embedder import CALIBRATION, SPACE, BundledEmbedder
from gateway.adapters.embedded.extractive import ExtractiveModel
from gateway.adapters.embedded.weights import bundled_weights
from gateway.adapters.memory.models import FixedEmbedder, Gate, ScriptedModel
from gateway.answer.citation import CitationStream, cite
from gateway.answer.evidence import Evidence, GateSignals, decide
from gateway.answer.model import AnswerModel, ModelFinish, ModelUsage, TextPiece
from gateway.answer.prompt import NO_SUPPORT_MARKER, Prompt, build_prompt
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, UpstreamFailed
from gateway.evaluation.labelled import LabelledDataUnusable
from gateway.evaluation.models import models_in_force
from gateway.retrieval.embedding import Embedder, Vector
from gateway.settings import Settings
from tests.harness.chunks import sample_chunk

ROLLBACK = """\
Roll back first, look for the cause afterwards. Run this:

```bash
acmectl rollback payment-service --to previous
```

A rollback takes less than 4 minutes and needs no approval.
"""
PLANS = """\
| Plan | Fee | Support |
|---|---|---|
| Basic | 5 EUR | by mail |
| Pro | 9 EUR | by phone |
"""
REFUNDS = "A refund is paid within 14 days. After 30 days a refund is not possible. The kitchen closes at 8."
REFUNDS_ZH = "退款在14天内完成。超过30天不予退款。食堂八点关门。"


@pytest.fixture(scope="module")
def embedder() -> BundledEmbedder:
    return BundledEmbedder.load_now()


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def passage(n: int, content: str, title: str = "Handbook", section: str = "") -> Evidence:
    place = {"embedding_space_id": SPACE.space_id, "document_id": f"d{n}", "title": title, "section": section}
    chunk = sample_chunk(content, f"c{n}", **place)
    return Evidence(n, chunk, 0.8, 0.03, "rrf", "dense #1")


def ask(question: str, *contents: str, tokens: int = 500) -> Prompt:
    evidence = [passage(n, content) for n, content in enumerate(contents, start=1)]
    return build_prompt(question, evidence, language="en", max_output_tokens=tokens)


async def said(model: AnswerModel, prompt: Prompt, within_ms: float = 10_000) -> list[str]:
    async with model.stream(prompt, Deadline.after(within_ms)) as pieces:
        return [piece.text async for piece in pieces if isinstance(piece, TextPiece)]


async def test_texts_become_unit_vectors_that_depend_on_nothing_else(embedder: BundledEmbedder) -> None:
    """Alone, in a small batch or in a large one: the same vector, bit by bit."""
    texts = ["short", "how are refunds paid?", "退款多久到账", REFUNDS * 20]
    alone = [(await embedder.embed([text], Deadline.after(10_000)))[0] for text in texts]
    together = await embedder.embed(texts * 20, Deadline.after(10_000))
    assert together == alone * 20
    assert all(len(vector) == SPACE.dimension for vector in alone)
    assert all(math.isclose(cosine(vector, vector), 1, abs_tol=1e-5) for vector in alone)


async def test_near_meanings_have_near_vectors(embedder: BundledEmbedder) -> None:
    """Enough to tell refunds from rockets."""
    one, near, far = await embedder.embed(
        ["How do I get my money back?", "Refunds are paid back to your card.", "Rockets burn liquid oxygen."],
        Deadline.after(10_000),
    )
    assert cosine(one, near) > cosine(one, far)


async def test_a_text_without_tokens_is_near_nothing(embedder: BundledEmbedder) -> None:
    """No NaN, unit length, and never evidence for a text with words."""
    empty, *others = await embedder.embed(["", "refund", REFUNDS, REFUNDS_ZH], Deadline.after(10_000))
    assert math.isclose(cosine(empty, empty), 1, abs_tol=1e-5)
    assert all(cosine(empty, other) <= 0 for other in others)
    assert await embedder.embed([], Deadline.after(10_000)) == []


async def test_opposite_and_orthogonal_evidence_is_refused(embedder: BundledEmbedder) -> None:
    """Similarities of real vectors go into the gate as they are, never as distances."""
    (vector,) = await embedder.embed(["refund"], Deadline.after(10_000))
    opposite = tuple(-value for value in vector)
    turned = [0.0] * len(vector)
    turned[0], turned[1] = -vector[1], vector[0]
    for other in (opposite, tuple(turned)):
        signals = GateSignals(1, 0, cosine(vector, other), coverage=1.0)
        assert not decide(CALIBRATION, signals).sufficient


async def test_a_large_batch_leaves_the_event_loop_alive(embedder: BundledEmbedder) -> None:
    """Other tasks run between its batches."""
    turns = 0
    finished = anyio.Event()

    async def other() -> None:
        nonlocal turns
        while not finished.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await embedder.embed([REFUNDS * 10] * 100, Deadline.after(30_000))
            finished.set()
    assert turns > 100


async def test_a_passed_deadline_stops_the_embedder(embedder: BundledEmbedder) -> None:
    """Before the first batch, for one text and for many."""
    for texts in (["one"], [REFUNDS] * 100):
        with pytest.raises(DeadlineExceeded) as caught:
            await embedder.embed(texts, Deadline.after(-1))
        assert caught.value.stage == "embedding"


def test_loading_opens_no_socket_and_leaves_logging_alone() -> None:
    """The library would download what it doesn't find, and sets up the root logger on import."""
    program = """
import asyncio, logging, socket, sys
def refuse(*args, **kwargs):
    raise SystemExit("a socket was opened")
loop = asyncio.new_event_loop()
socket.socket.connect = refuse
from gateway.adapters.embedded.embedder import BundledEmbedder
embedder = loop.run_until_complete(BundledEmbedder.load())
assert embedder.vectors(["x"]).shape == (1, 256)
root = logging.getLogger()
assert root.handlers == [] and root.level == logging.WARNING, root.handlers
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


async def test_the_answering_sentence_comes_first_with_its_marker(embedder: BundledEmbedder) -> None:
    """A sentence a piece; every one cites the passage it stands in."""
    prompt = ask("Is a refund possible after 30 days?", "Rockets burn oxygen. They are loud.", REFUNDS)
    pieces = await said(ExtractiveModel(embedder), prompt)
    assert "After 30 days a refund is not possible. [2]" in "".join(pieces)
    assert len(pieces) <= 3
    assert all(piece.rstrip().endswith("[2]") for piece in pieces)


async def test_every_citation_of_an_extractive_answer_is_supported(embedder: BundledEmbedder) -> None:
    """Rows, code and sentences are found again in their passages."""
    prompt = ask("How do I roll back payment-service, and what is the fee of Pro?", ROLLBACK, PLANS, REFUNDS)
    text = "".join(await said(ExtractiveModel(embedder), prompt))
    stream = CitationStream(3)
    assert stream.feed(text) + stream.flush() == text
    assert stream.unknown == 0
    cited = {n: cite(text, n, prompt.evidence[n - 1].chunk) for n in stream.cited}
    assert cited
    assert all(c.supported and c.quote in prompt.evidence[n - 1].chunk.content for n, c in cited.items())


async def test_a_command_comes_whole_after_its_sentence(embedder: BundledEmbedder) -> None:
    """With the fence, so that it can be copied."""
    text = "".join(
        await said(ExtractiveModel(embedder), ask("How do I roll back payment-service?", ROLLBACK))
    )
    assert "Run this: [1]\n\n```bash\nacmectl rollback payment-service --to previous\n```\n[1]" in text


async def test_a_row_names_its_columns(embedder: BundledEmbedder) -> None:
    """A number without its column says nothing."""
    text = "".join(await said(ExtractiveModel(embedder), ask("What is the fee of the Pro plan?", PLANS)))
    assert "- Plan: Pro; Fee: 9 EUR; Support: by phone [1]" in text


async def test_an_item_follows_its_lead_in(embedder: BundledEmbedder) -> None:
    """The lead-in is said once."""
    content = "Never roll back when:\n\n- a contract migration has run\n- the rollback window is closed\n"
    text = "".join(
        await said(ExtractiveModel(embedder), ask("When must I not roll back a migration?", content))
    )
    assert text.startswith("Never roll back when: [1]\n\n- a contract migration has run [1]")
    assert text.count("Never roll back when:") == 1


async def test_nothing_is_said_twice(embedder: BundledEmbedder) -> None:
    """Two passages with the same sentence count once."""
    text = "".join(await said(ExtractiveModel(embedder), ask("When is a refund paid?", REFUNDS, REFUNDS)))
    assert text.count("paid within 14 days") == 1


@pytest.mark.parametrize(("question", "n"), [("ERR_9 是什么意思？", 2), ("What is ERR_9?", 1)])
async def test_the_questions_language_goes_first(embedder: BundledEmbedder, question: str, n: int) -> None:
    """Whichever stands first in the evidence, when both name the same thing."""
    contents = ("ERR_9 means: disk full.", "ERR_9 表示磁盘已满。")
    for order in (contents, contents[::-1]):
        first, *_ = await said(ExtractiveModel(embedder), ask(question, *order))
        assert contents[n - 1] in first


async def test_a_small_budget_still_gets_one_whole_sentence(embedder: BundledEmbedder) -> None:
    """Half a sentence may lose its condition."""
    prompt = ask("Is a refund possible after 30 days?", REFUNDS, tokens=1)
    assert await said(ExtractiveModel(embedder), prompt) == ["After 30 days a refund is not possible. [1]"]


LIMITS = (
    "Export limits are checked at night by the scheduler of premium accounts. Logs are kept. "
    "The export limit for premium accounts is 500 rows per day."
)


@pytest.mark.parametrize("tokens", range(30, 38))
async def test_the_best_sentence_is_said_whatever_the_budget(embedder: BundledEmbedder, tokens: int) -> None:
    """What stands before it in its passage doesn't take its room."""
    prompt = ask("What is the export limit for premium accounts?", LIMITS, tokens=tokens)
    assert "500 rows" in "".join(await said(ExtractiveModel(embedder), prompt))


async def test_a_lead_in_is_never_all_that_is_said(embedder: BundledEmbedder) -> None:
    """However little may be said, an item follows it."""
    content = "Never roll back when:\n\n- a contract migration has run\n- the rollback window is closed\n"
    for tokens in (1, 16, 30):
        prompt = ask("When must I not roll back a migration?", content, tokens=tokens)
        assert "- a contract migration has run [1]" in "".join(await said(ExtractiveModel(embedder), prompt))


CONFLICTS = {
    "en": (
        "What is the deposit for a cargo bicycle?",
        "The deposit for a cargo bicycle is 50 EUR.",
        "For a cargo bicycle the deposit is 80 EUR.",
    ),
    "zh": ("货运自行车的押金是多少？", "货运自行车的押金为50元。", "货运自行车押金为80元。"),
}
BESIDE = "Cargo bicycles are kept in the yard. 货运自行车停在院子里。"


@pytest.mark.parametrize("language", CONFLICTS)
@pytest.mark.parametrize("tokens", [1, 500])
async def test_of_two_values_none_is_said_alone(
    embedder: BundledEmbedder, language: str, tokens: int
) -> None:
    """Sources that contradict each other are both quoted and cited, the first ones, whatever the budget."""
    question, one, other = CONFLICTS[language]
    prompt = ask(question, one, BESIDE, other, tokens=tokens)
    text = "".join((await said(ExtractiveModel(embedder), prompt))[:2])
    assert f"{one} [1]" in text
    assert f"{other} [3]" in text


async def test_a_document_does_not_contradict_itself(embedder: BundledEmbedder) -> None:
    """Two passages of one document are a table, or an exception that its reader sees."""
    question, one, other = CONFLICTS["en"]
    first, second = passage(1, one), passage(2, other)
    second = replace(second, chunk=replace(second.chunk, document_id=first.chunk.document_id))
    prompt = build_prompt(question, (first, second), language="en", max_output_tokens=1)
    assert len(await said(ExtractiveModel(embedder), prompt)) == 1


async def test_usage_is_estimated_and_the_end_is_said(embedder: BundledEmbedder) -> None:
    """As any other model ends."""
    model = ExtractiveModel(embedder)
    async with model.stream(ask("refund", REFUNDS), Deadline.after(10_000)) as pieces:
        *_, usage, finish = [piece async for piece in pieces]
    assert isinstance(usage, ModelUsage)
    assert usage.estimated
    assert usage.output_tokens > 0
    assert finish == ModelFinish("stop")


async def test_evidence_without_a_sentence_is_no_support(embedder: BundledEmbedder) -> None:
    """Headings alone answer nothing."""
    assert await said(ExtractiveModel(embedder), ask("refund", "# Refunds\n")) == [NO_SUPPORT_MARKER]


def test_the_calibration_command_reports_on_any_labelled_set(tmp_path: Path) -> None:
    """Four articles that share no word: telling foreign questions apart is easy here."""
    topics = ["refund money customer", "rocket oxygen engine", "bread flour oven", "violin string bow"]
    passages = [
        {"id": i, "title": t.split()[0], "text": f"All about {t}. " * 3} for i, t in enumerate(topics)
    ]
    questions = [
        {"question": f"What has {word} to do with it?", "passage": i, "answerable": True}
        for i, topic in enumerate(topics)
        for word in topic.split()
    ]
    content = json.dumps({"passages": passages, "questions": questions})
    (tmp_path / "toy.json").write_text(content, encoding="utf-8")
    with models_in_force(Settings()) as models:
        made = report(tmp_path, models)
    assert made["retrieval"]["toy"]["rrf"]["recall@5"] == 1
    assert made["held_out_fitted"].keys() == {"fused", bundled_weights().version}
    for judged in made["held_out_fitted"].values():
        assert (judged["toy"]["auc"], judged["toy"]["false_accepts"]) == (1, 0)
        with pytest.raises(LabelledDataUnusable):
            report(tmp_path / "none", models)


async def test_a_scripted_model_waits_where_it_is_told() -> None:
    """Before the headers, before the first token, between tokens; and it knows when it was left."""
    holds = {-1: Gate(), 0: Gate(), 1: Gate()}
    model = ScriptedModel(["a", "b"], hold=holds)
    seen: list[object] = []

    async def call() -> None:
        async with model.stream(ask("q", REFUNDS), Deadline.after(10_000)) as pieces:
            seen.append("open")
            async for piece in pieces:
                seen.append(piece)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            for place, before in [(-1, []), (0, ["open"]), (1, ["open", TextPiece("a")])]:
                await holds[place].reached.wait()
                assert seen == before
                holds[place].release.set()
    assert seen[2:] == [TextPiece("b"), ModelUsage(1, 2, estimated=False), ModelFinish("stop")]
    assert (model.called, model.opened, model.closed) == (1, 1, 1)


async def test_a_scripted_model_is_closed_by_a_cancel_and_fails_where_it_is_told() -> None:
    """A cancel in a hold leaves it closed; an error comes before its piece."""
    gate = Gate()
    held = ScriptedModel(["a"], hold={0: gate})
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(said, held, ask("q", REFUNDS))
            await gate.reached.wait()
            tasks.cancel_scope.cancel()
    assert (held.opened, held.closed, held.produced) == (1, 1, 0)
    failing = ScriptedModel(["a", "b"], fail={1: UpstreamFailed("gone")})
    with pytest.raises(UpstreamFailed):
        await said(failing, ask("q", REFUNDS))
    assert (failing.produced, failing.closed) == (1, 1)


async def test_a_hold_ends_with_the_deadline() -> None:
    """As a silent upstream would."""
    prompt = ask("q", REFUNDS)
    for place, stage in [(-1, "first_token"), (0, "first_token"), (1, "idle")]:
        model = ScriptedModel(["a", "b"], hold={place: Gate()})
        with pytest.raises(DeadlineExceeded) as caught:
            await said(model, prompt, within_ms=20)
        assert caught.value.stage == stage
    with pytest.raises(DeadlineExceeded):
        await FixedEmbedder(hold=Gate()).embed(["a"], Deadline.after(20))


async def test_the_fixed_embedder_is_deterministic() -> None:
    """Equal texts are equal, shared words are near, fixed ones are as given."""
    fixed = FixedEmbedder(vectors={"x": (1.0,) + (0.0,) * 31})
    twin: Embedder = FixedEmbedder()
    texts = ["refund days", "refund weeks", "rocket fuel", ""]
    vectors = await fixed.embed([*texts, "x"], Deadline.after(1000))
    assert vectors[:4] == await twin.embed(texts, Deadline.after(1000))
    assert all(math.isclose(cosine(vector, vector), 1) for vector in vectors)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])
    assert vectors[4][0] == 1
