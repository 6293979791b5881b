"""The moderator's contract: over the twin, a file of phrases and an endpoint that speaks OpenAI's API."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from gateway.adapters.embedded.phrases import PhraseModerator
from gateway.adapters.memory.moderation import WordModerator
from gateway.adapters.openai.moderation import OpenAIModerator
from gateway.answer.calls.moderation import Moderator
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded
from loadtest.model_stub import serve_stub

PATIENCE_S = 20
LONG = 60_000
WORD = "Giftwasser"
TEXTS = [
    ("It is 42 [1].", False),
    (f"Drink the {WORD}.", True),
    ("限额是 42 兆字节 🙂", False),
    (f'"{WORD}" \\ \n\t\u2028 \x00 退款', True),
    ("word " * 5000, False),
    ("word " * 5000 + WORD, True),
]


@pytest.fixture(params=["memory", "embedded", "real"])
async def moderator(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Moderator]:
    """One of each kind, that flags the word."""
    if request.param == "memory":
        yield WordModerator({WORD: "harm"})
    elif request.param == "embedded":
        phrases = tmp_path / "phrases.txt"
        phrases.write_text(f"# what we don't say\n\nharm: {WORD}\n", "utf-8")
        yield PhraseModerator.load(phrases)
    else:
        async with serve_stub() as stub:
            stub.script_model("judge", flag=[WORD])
            remote = OpenAIModerator(stub.base_url, "judge", None, max_sensitivity=3, connect_cap_ms=5000)
            yield remote
            await remote.aclose()


@pytest.mark.parametrize(("text", "flagged"), TEXTS, ids=range(len(TEXTS)))
async def test_a_text_is_flagged_for_what_it_holds(moderator: Moderator, text: str, flagged: bool) -> None:
    """In any script, of any length; a category comes with a flag alone."""
    with anyio.fail_after(PATIENCE_S):
        verdict = await moderator.check(text, Deadline.after(LONG))
    assert (verdict.flagged, len(verdict.categories)) == (flagged, int(flagged))


async def test_a_passed_deadline_is_told_as_the_moderations(moderator: Moderator) -> None:
    """Nothing is looked at any more."""
    with anyio.fail_after(PATIENCE_S), pytest.raises(DeadlineExceeded) as passed:
        await moderator.check("harmless", Deadline.after(0))
    assert passed.value.stage == "moderation"


async def test_a_cancel_leaves_it_usable(moderator: Moderator) -> None:
    """However far the check had come."""
    for turns in range(6):
        async with anyio.create_task_group() as group:
            group.start_soon(moderator.check, WORD, Deadline.after(LONG))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    with anyio.fail_after(PATIENCE_S):
        assert (await moderator.check(WORD, Deadline.after(LONG))).flagged


async def test_checks_at_the_same_time_do_not_mix(moderator: Moderator) -> None:
    """Each gets the verdict on its own text."""
    found: dict[int, bool] = {}

    async def one(place: int) -> None:
        found[place] = (await moderator.check(TEXTS[place % 4][0], Deadline.after(LONG))).flagged

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            for place in range(20):
                group.start_soon(one, place)
    assert found == {place: TEXTS[place % 4][1] for place in range(20)}


async def test_it_says_what_it_is_cleared_for(moderator: Moderator) -> None:
    """A sensitivity from public to secret."""
    assert moderator.max_sensitivity in range(4)
