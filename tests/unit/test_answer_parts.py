"""Which store of answers the settings open, and which secret they refuse."""

import base64
from contextlib import AsyncExitStack

import pytest

from gateway.adapters.memory.answers import MemoryAnswers
from gateway.adapters.redis.answers import RedisAnswers
from gateway.answer.cache import AnswerStore
from gateway.answer.reuse.sealed import SealedAnswers
from gateway.bootstrap.answer_store import open_answers
from gateway.errors import ConfigurationError
from gateway.settings import Settings

REDIS = {"redis_url": "redis://127.0.0.1:1"}
KEY = {"answer_cache_key": base64.b64encode(bytes(range(32))).decode()}


async def opened(**given: object) -> AnswerStore | None:
    async with AsyncExitStack() as stack:
        return open_answers(Settings.model_validate(given), stack)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, MemoryAnswers),
        (KEY, MemoryAnswers),
        (REDIS, RedisAnswers),
        (REDIS | KEY, SealedAnswers),
        (REDIS | {"answer_cache_ttl_s": 0}, type(None)),
        ({"answer_cache_ttl_s": 0}, type(None)),
    ],
)
async def test_answers_are_kept_where_all_processes_find_them(given: dict[str, object], kind: type) -> None:
    """In Redis where there is one, sealed where there is a key, nowhere when they are to be kept for no time.

    Nothing is asked of Redis to start.
    """
    assert type(await opened(**given)) is kind


@pytest.mark.parametrize("more", [{}, REDIS, {"answer_cache_ttl_s": 0}])
async def test_a_key_that_is_none_fails_the_start(more: dict[str, object]) -> None:
    """Wherever answers are kept, and without quoting it."""
    with pytest.raises(ConfigurationError) as refused:
        await opened(answer_cache_key="sw0rdfish", **more)
    assert refused.value.reason == "answer_cache_key"
    assert "sw0rdfish" not in str(refused.value)
