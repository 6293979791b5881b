"""A whole gateway in the test's own process, of in-memory twins or real parts, with places to hold it."""

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from gateway.access.authorizer import PrincipalSource, Recheck
from gateway.access.classes import Acl
from gateway.access.principal import IdentityVerifier
from gateway.adapters.identity.api_keys import ApiKeyVerifier, Pepper, Verifiers
from gateway.adapters.identity.tokens import LocalKey
from gateway.adapters.memory.answers import MemoryAnswers
from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.memory.models import FixedEmbedder, Gate, ScriptedModel
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.admission.quota import Quota
from gateway.answer.cache import AnswerStore
from gateway.bootstrap.composition import Parts, compose
from gateway.bootstrap.quota import local_quota
from gateway.ingest.building import build_document
from gateway.ingest.document import BuiltDocument
from gateway.ingest.task import TaskRecord
from gateway.ingest.uploads import ImportRequest, NewDocument
from gateway.ingest.worker import Worker
from gateway.release.model import GateFit, RetrievalConfig
from gateway.retrieval.chunk import stable_hash
from gateway.settings import Settings
from gateway.stream.hints import ChangeHints
from gateway.stream.registry import SessionRegistry
from gateway.web.services import Services

#: a busy machine isn't what tests are about; those of a cap give theirs
_PATIENT = {f"{cap}_cap_ms": 10_000 for cap in ("embed", "retrieval", "rerank", "catalog", "connect")} | {
    "revocation_bound_ms": 20_000
}
#: each question is answered by itself, unless a test is about sharing
_UNSHARED = {"answer_cache_ttl_s": 0, "answer_sharing": False}
#: lets every passage with any similarity through
OPEN_GATE = RetrievalConfig("open/1", w_similarity=1.0, w_coverage=1.0, bias=0.0)
_OPEN_WEIGHTS = (("top_similarity", 1.0), ("coverage", 1.0))

#: ``sign(tenant=, subject=, groups=, scopes=, ttl_s=)`` gives a token
Sign = Callable[..., str]

#: one key for all worlds of a test run: making one is slow and says nothing new
_KEY = LocalKey.load(Path(tempfile.mkdtemp(prefix="gateway-test-key-")))
_PEPPER = Pepper(b"of all worlds of a test run, no secret")


def open_gate(reranker: str) -> RetrievalConfig:
    """The same, also for passages in the order of that reranker."""
    return replace(OPEN_GATE, gates=(GateFit(_OPEN_WEIGHTS, bias=0.0, reranker=reranker),))


class DirectParser:
    """A DocumentParser without a child process."""

    async def build(self, source: str, media_type: str, content: bytes) -> BuiltDocument:
        return build_document(source, media_type, content)


@dataclass
class Hold:
    """Where one call of a part waits; ``left`` counts the calls that are over, also by a cancel."""

    gate: Gate = field(default_factory=Gate)
    left: int = 0


class Held:
    """A part whose named methods wait at a Hold before they begin; everything else passes through."""

    def __init__(self, part: object, holds: Mapping[str, Hold]) -> None:
        self._part = part
        self._holds = holds

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._part, name)
        hold = self._holds.get(name)
        return attribute if hold is None else functools.partial(self._call, hold, attribute)

    async def _call(self, hold: Hold, method: Any, *arguments: Any, **named: Any) -> Any:
        try:
            await hold.gate.wait()
            return await method(*arguments, **named)
        finally:
            hold.left += 1


class ObservedRegistry(SessionRegistry):
    """Tells when the last session has left."""

    def __init__(self) -> None:
        super().__init__(self._changed)
        self._empty = anyio.Event()
        self._empty.set()
        self.arrived = anyio.Event()

    def _changed(self, count: int) -> None:
        if count:
            self._empty = anyio.Event() if self._empty.is_set() else self._empty
            self.arrived.set()
        else:
            self._empty.set()
            self.arrived = anyio.Event()

    async def idle(self) -> None:
        await self._empty.wait()

    def only_request_id(self) -> str:
        (request_id,) = self._sessions
        return request_id


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a world stands on: everything but the answer model, which is always a scripted one."""

    catalog: Any
    vectors: Any
    objects: Any
    embedder: Any
    offline_embedder: Any
    parser: Any
    config: RetrievalConfig
    quota: Quota
    tokens: IdentityVerifier
    pepper: Pepper
    sign: Sign


def twins(settings: Settings, embedder: Any = None) -> Ground:
    """In memory, all of it."""
    return Ground(
        catalog=MemoryCatalog(),
        vectors=MemoryVectors(),
        objects=MemoryObjects(),
        embedder=embedder or FixedEmbedder(),
        offline_embedder=FixedEmbedder(),
        parser=DirectParser(),
        config=OPEN_GATE,
        quota=local_quota(settings),
        tokens=_KEY.verifier(settings.token_audience, settings.token_leeway_s),
        pepper=_PEPPER,
        sign=functools.partial(_KEY.sign, audience=settings.token_audience),
    )


class World:
    """One gateway, over twins unless a ``ground`` is given. ``holds`` maps ``part.method`` (catalog, vectors,
    objects, verifier) to a Hold. Its worker runs only when told to. ``name`` tells it from other worlds over
    the same parts.
    """

    def __init__(
        self,
        *,
        model: Any = None,
        second_model: Any = None,
        moderator: Any = None,
        reranker: Any = None,
        answers: AnswerStore | None = None,
        vectorstore: Any = None,
        embedder: Any = None,
        previous_embedder: Any = None,
        config: RetrievalConfig | None = None,
        holds: Mapping[str, Hold] | None = None,
        principals: PrincipalSource | None = None,
        recheck: Recheck | None = None,
        ground: Ground | None = None,
        hints: Sequence[ChangeHints] = (),
        name: str = "serve",
        **settings: Any,
    ) -> None:
        self.settings = Settings(**{"data_dir": Path("unused"), **_PATIENT, **_UNSHARED, **settings})
        ground = ground or twins(self.settings, embedder)
        self.catalog = ground.catalog
        self.vectors = ground.vectors
        self.objects = ground.objects
        self.embedder = ground.embedder
        self.model = model or ScriptedModel(["The answer is 42 [1]."])
        self.registry = ObservedRegistry()
        self.holds = dict(holds or {})
        self._sign = ground.sign
        verifier = Verifiers(ground.tokens, ApiKeyVerifier(self.catalog, ground.pepper))
        parts = Parts(
            verifier=self._held("verifier", verifier),
            api_keys=ground.pepper,
            catalog=self._held("catalog", self.catalog),
            objects=self._held("objects", self.objects),
            vectors=self._held("vectors", self.vectors),
            embedder=self.embedder,
            previous_embedder=previous_embedder,
            offline_embedder=ground.offline_embedder,
            parser=ground.parser,
            reranker=reranker,
            vectorstore=vectorstore,
            model=self.model,
            second_model=second_model,
            moderator=moderator,
            config=config or ground.config,
            quota=ground.quota,
            answers=answers or MemoryAnswers(self.settings.answer_cache_bytes),
            checks={},
            principals=principals,
            recheck=recheck,
            hints=tuple(hints),
        )
        self.services: Services = compose(self.settings, parts, name, self.registry)[0]
        quiet = replace(parts, catalog=self.catalog, vectors=self.vectors, objects=self.objects)
        self.worker: Worker = compose(self.settings, quiet)[1]

    def _held(self, name: str, part: Any) -> Any:
        prefix = f"{name}."
        holds = {k.removeprefix(prefix): v for k, v in self.holds.items() if k.startswith(prefix)}
        return Held(part, holds) if holds else part

    @property
    def verifier(self) -> IdentityVerifier:
        return self.services.verifier

    def token(
        self,
        tenant: str = "acme",
        subject: str = "ann",
        groups: Sequence[str] = ("staff",),
        scopes: Sequence[str] = ("ask",),
        ttl_s: float = 600,
    ) -> str:
        return self._sign(tenant=tenant, subject=subject, groups=groups, scopes=scopes, ttl_s=ttl_s)

    async def learn(
        self,
        texts: Mapping[str, str],
        *,
        tenant: str = "acme",
        knowledge_base: str = "handbook",
        allow: Sequence[str] = ("group:staff",),
        deny: Sequence[str] = (),
        **fields: Any,
    ) -> TaskRecord:
        """Imports documents and activates their release; returns the ended task."""
        documents = []
        for source, text in texts.items():
            content = text.encode()
            key = f"originals/{stable_hash(text)}"
            await self.objects.put(key, content)
            documents.append(
                NewDocument(
                    source=source,
                    uri=source,
                    media_type="",
                    original_key=key,
                    content_sha256=stable_hash(text),
                    size_bytes=len(content),
                    acl=Acl.parse(allow, deny),
                    **fields,
                )
            )
        accepted = await self.catalog.accept_import(
            ImportRequest(
                tenant=tenant,
                knowledge_base=knowledge_base,
                subject="importer",
                documents=tuple(documents),
                activate=True,
                allow_partial=False,
                deadline_s=600,
            )
        )
        await self.work()
        task: TaskRecord | None = await self.catalog.task(tenant, accepted.task_id)
        assert task is not None
        return task

    async def work(self) -> None:
        """Does every task that waits."""
        while (claim := await self.catalog.claim("test", 600, 5)) is not None:
            await self.worker.work(claim)

    def assert_nothing_held(self) -> None:
        """Every place is free again, and every call of a part or the model is over."""
        assert {b.name: b.in_use for b in self.services.bulkheads if b.in_use} == {}
        assert {b.name: b.waiting for b in self.services.bulkheads if b.waiting} == {}
        assert {b.name: b.announced for b in self.services.bulkheads if b.announced} == {}
        if isinstance(self.model, ScriptedModel):
            assert self.model.closed == self.model.called
        for name, hold in self.holds.items():
            entered = hold.gate.reached.is_set()
            assert not entered or hold.left, f"{name} is still being called"
