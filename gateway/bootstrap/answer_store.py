"""Where answers are kept, as the settings say: in this process, or in Redis for all of them."""

from contextlib import AsyncExitStack

from gateway.adapters.memory.answers import MemoryAnswers
from gateway.answer.cache import AnswerStore
from gateway.answer.reuse.caching import KEEP_CAP_S
from gateway.answer.reuse.forgetting import Forgetting
from gateway.answer.reuse.sealed import Seal, SealedAnswers
from gateway.settings import Settings


def open_answers(settings: Settings, stack: AsyncExitStack) -> AnswerStore | None:
    """Closed with the stack; None where no answer is kept. Raises ConfigurationError for a key or an address
    that means nothing.
    """
    seal = _seal(settings)
    if not settings.answer_cache_ttl_s:
        return None
    if settings.redis_url is None:
        return MemoryAnswers(settings.answer_cache_bytes)
    from gateway.adapters.redis.answers import RedisAnswers

    url = settings.redis_url.get_secret_value()
    # as long as a writing may take; what a question waits for ends sooner
    patience_ms = max(round(KEEP_CAP_S * 1000), settings.answer_cache_cap_ms)
    answers = RedisAnswers(url, settings.answer_cache_bytes, patience_ms)
    stack.push_async_callback(answers.aclose)
    return answers if seal is None else SealedAnswers(answers, seal)


def answer_erasure(settings: Settings, answers: AnswerStore | None) -> Forgetting | None:
    """None where no answer is kept."""
    if answers is None or not settings.answer_cache_ttl_s:
        return None
    is_only_process = settings.database_url is None
    return Forgetting(answers, reaches_all=settings.redis_url is not None or is_only_process)


def _seal(settings: Settings) -> Seal | None:
    if settings.answer_cache_key is None:
        return None
    from gateway.adapters.aes import AesSeal

    return AesSeal.from_base64(settings.answer_cache_key.get_secret_value())
