"""The doctor: looks at every part as a start would, and says what is wrong and what to do about it."""

import platform
import sqlite3
import stat
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum

import gateway
from gateway.adapters.objects import open_objects
from gateway.adapters.room import Room
from gateway.adapters.sql.sqlite import has_wal_reset_bug
from gateway.bootstrap import fitness
from gateway.bootstrap.advice import advice_for, told
from gateway.bootstrap.answer_store import open_answers
from gateway.bootstrap.parts import PartsOpener
from gateway.context import Deadline
from gateway.errors import (
    ConfigurationError,
    DeadlineExceeded,
    GatewayError,
    ObjectStoreUnavailable,
    RerankerUnavailable,
)
from gateway.keeping.comparing import LATE_S
from gateway.settings import Settings

#: leases and validity dates are compared with the clocks of two machines
_SKEW_S = 2.0
_EMBED_CAP_MS = 5000
_RERANK_CAP_MS = 5000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``code`` is stable; ``advice`` is empty where nothing is to be done."""

    part: str
    verdict: Verdict
    code: str
    detail: str

    @property
    def advice(self) -> str:
        return "" if self.verdict is Verdict.OK else advice_for(self.code)


async def examine(settings: Settings) -> list[Finding]:
    """Everything that a start would look at, each part by itself: one that is down hides no other.

    Waits for nothing and leaves nothing changed. Embedded parts belong to the process that serves, so
    they are only named here.
    """
    impatient = settings.model_copy(update={"start_wait_s": 0.0})
    async with AsyncExitStack() as stack:
        return await _Examination(impatient, PartsOpener(impatient, stack)).run()


#: what ``serve`` refuses before it opens anything
_SETTINGS: tuple[tuple[str, Callable[[Settings], list[str]]], ...] = (
    ("settings_incomplete", fitness.incomplete),
    ("quota_too_small", fitness.too_small),
    ("quota_lease_too_short", fitness.too_short),
    ("embedders_named_twice", fitness.named_twice),
    ("moderation_is_off", fitness.unused_moderators),
    ("polls_too_seldom", fitness.too_seldom),
)


class _Examination:
    def __init__(self, settings: Settings, opener: PartsOpener) -> None:
        self._settings = settings
        self._opener = opener
        self._findings: list[Finding] = []
        self._released: frozenset[str] = frozenset()

    async def run(self) -> list[Finding]:
        self._look_at_settings()
        parts: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
            ("data_folder", self._look_at_data_folder),
            ("catalog", self._look_at_catalog),
            ("embedder", self._look_at_embedder),
            ("reranker", self._look_at_reranker),
            ("vector_store", self._look_at_vectors),
            ("object_store", self._look_at_objects),
            ("journal", self._look_at_journal),
            ("quota", self._look_at_quota),
            ("answers", self._look_at_answers),
            ("identity", self._look_at_identity),
            ("model", self._look_at_model),
        )
        for part, look in parts:
            try:
                await look()
            except ConfigurationError as error:
                self._failed(part, error.reason, error.detail)
            except DeadlineExceeded as error:
                self._failed(part, f"{part}_unavailable", told(error))
            except GatewayError as error:
                self._failed(part, error.code, told(error))
        return self._findings

    def _look_at_settings(self) -> None:
        settings = self._settings
        self._ok(
            "settings",
            f"qa-gateway {gateway.__version__}, Python {platform.python_version()}, {settings.env}, "
            f"data in {settings.data_dir}",
        )
        for code, look in _SETTINGS:
            for text in look(settings):
                self._failed("settings", code, text)
        if settings.env == "production":
            for text in fitness.embedded_parts(settings):
                self._failed("settings", "production_needs_servers", text)
        if settings.workers > 1:
            for text in fitness.unshared_parts(settings):
                self._failed("settings", "workers_need_servers", text)
        if settings.data_dir.is_dir() and settings.data_dir.stat().st_mode & _OTHERS:
            self._warn(
                "settings", "data_dir_open", "other accounts of this machine may enter the data folder"
            )

    async def _look_at_data_folder(self) -> None:
        """Where a part lies in it. One that isn't there yet is made by the first start."""
        settings = self._settings
        servers = (settings.database_url, settings.milvus_uri, settings.object_store_url)
        if None in servers and settings.data_dir.is_dir():
            room = Room(settings.data_dir, settings.data_reserve_mb * 1024 * 1024)
            await room.ping()
            await room.spare()
            self._ok("data_folder", f"may be written to, with more than {settings.data_reserve_mb} MiB free")

    async def _look_at_catalog(self) -> None:
        if self._settings.database_url is None:
            self._ok("catalog", f"SQLite {sqlite3.sqlite_version}, opened by the serving process alone")
            if has_wal_reset_bug():
                self._ok("catalog", "this SQLite has the WAL-reset bug; one writer and no mmap avoid it")
            return
        catalog = await self._opener.catalog()
        self._ok("catalog", f"{await catalog.server_version()}, schema up to date")
        skew_s = await catalog.clock_skew_s()
        if abs(skew_s) > _SKEW_S:
            self._failed("catalog", "clock_skew", f"the database's clock is {skew_s:+.1f} s off ours")
        self._look_at_powers("catalog", await catalog.excess_privileges())
        self._released = await catalog.active_spaces()
        if not await catalog.is_confirmed():
            self._warn("catalog", "restore_unconfirmed", "it comes from a backup and answers nothing yet")
        if (lag_s := await catalog.journal_lag_s()) > LATE_S:
            self._warn("journal", "journal_late", f"its oldest entry waits since {lag_s:.0f} s")

    async def _look_at_embedder(self) -> None:
        embedder = await self._opener.models.embedder()
        space = embedder.space
        await embedder.embed(["Does it answer?"], Deadline.after(_EMBED_CAP_MS))
        self._ok("embedder", f"{space.space_id}, {space.dimension} dimensions")
        if not self._opener.config(space).calibrated:
            self._warn("embedder", "not_calibrated", f"the gate has no thresholds for {space.space_id}")
        previous = await self._opener.models.previous_embedder()
        answerable = {space.space_id}
        if previous is not None:
            await previous.embed(["Does it answer?"], Deadline.after(_EMBED_CAP_MS))
            self._ok("embedder", f"{previous.space.space_id}, for releases of before")
            answerable.add(previous.space.space_id)
        for other in sorted(self._released - answerable):
            self._failed("embedder", "embedding_space_mismatch", f"an active release holds {other}")

    async def _look_at_reranker(self) -> None:
        """Nothing of it is fatal: without it questions are answered in the fused order."""
        embedder = await self._opener.models.embedder()
        reranker = self._opener.models.reranker(embedder)
        if reranker is None:
            self._ok("reranker", "none: passages stay in the fused order")
            return
        self._ok("reranker", reranker.version)
        if self._opener.config(embedder.space).reranker != reranker.version:
            self._warn("reranker", "reranker_not_calibrated", "the gate's thresholds aren't fitted for it")
        endpoint = self._opener.models.rerank_endpoint()
        if endpoint is None:
            return
        try:
            await endpoint.ranked("Does it answer?", ["It does."], Deadline.after(_RERANK_CAP_MS))
        except (RerankerUnavailable, DeadlineExceeded) as error:
            self._warn("reranker", "reranker_unavailable", told(error))

    async def _look_at_vectors(self) -> None:
        if self._settings.milvus_uri is None:
            self._ok("vector_store", "Milvus Lite, a child of the serving process")
            return
        store = await self._opener.vectors(may_create=False)
        self._ok("vector_store", f"Milvus {await store.server_version()}")
        self._look_at_powers("vector_store", await store.privileges())
        space = self._opener.models.offline_embedder().space
        self._ok("vector_store", f"the collection {await store.prepare(space)} is there")

    async def _look_at_objects(self) -> None:
        if self._settings.object_store_url is not None:
            await self._opener.objects()
            self._ok("object_store", "may list, write, read and delete")
        elif self._settings.database_url is not None:
            self._warn("object_store", "not_shared", "originals lie in the data folder")
        else:
            self._ok("object_store", "the data folder")

    async def _look_at_journal(self) -> None:
        url = self._settings.journal_url
        if url is not None and "://" in url:
            try:
                await open_objects(url).ping()
            except ObjectStoreUnavailable as error:
                self._failed("journal", "journal_unavailable", told(error))
            else:
                self._ok("journal", "may list, write, read and delete")
        elif self._settings.database_url is not None:
            self._warn("journal", "journal_not_shared", "it lies in a folder of this machine")
        else:
            self._ok("journal", url or "a folder in the data folder")

    async def _look_at_quota(self) -> None:
        if self._settings.redis_url is None:
            self._ok("quota", "counted in this process")
            return
        quota = self._opener.redis_quota(self._settings.redis_url)
        server = await quota.server()
        self._ok("quota", f"Redis {server.version}, shared by all processes")
        if server.evicts:
            self._warn("quota", "quota_evicts", "Redis drops keys when its memory is full")
        await quota.ping()

    async def _look_at_answers(self) -> None:
        """Where they are kept. Its Redis is the quota's, which was looked at."""
        settings = self._settings
        async with AsyncExitStack() as stack:
            kept = open_answers(settings, stack) is not None
        if not kept:
            self._ok("answers", "none is kept")
        elif settings.redis_url is None:
            self._ok("answers", f"kept {settings.answer_cache_ttl_s:g} s in each web process' memory")
        else:
            sealed = "not encrypted" if settings.answer_cache_key is None else "encrypted"
            self._ok("answers", f"kept {settings.answer_cache_ttl_s:g} s in Redis, {sealed}")

    async def _look_at_identity(self) -> None:
        pepper = self._opener.pepper() if self._settings.api_key_pepper is not None else None
        keys = "API keys are on" if pepper or self._settings.env == "development" else "API keys are off"
        if self._settings.oidc_issuer is None:
            self._ok("identity", f"the local key (development); {keys}")
            return
        self._opener.token_verifier()
        if await self._opener.checks["identity"]():
            self._ok("identity", f"the keys of {self._settings.oidc_issuer} are here; {keys}")
        else:
            self._failed("identity", "identity_unavailable", "the issuer's keys can't be had")

    async def _look_at_model(self) -> None:
        if self._settings.model_base_url is None:
            self._ok("model", "extractive: sentences of the evidence")
            return
        model = self._opener.models.model(await self._opener.models.embedder())
        if await self._opener.checks["model"]():
            self._ok("model", f"{model.name} answers")
        else:
            self._failed("model", "model_unavailable", f"{model.name} doesn't answer to GET /models")

    def _look_at_powers(self, part: str, powers: list[str]) -> None:
        if not powers:
            return
        detail = f"its account may do more than read and write rows: {fitness.some_of(powers)}"
        if self._settings.env == "production":
            self._failed(part, "account_too_powerful", detail)
        else:
            self._warn(part, "account_too_powerful", detail)

    def _ok(self, part: str, detail: str) -> None:
        self._findings.append(Finding(part, Verdict.OK, "ok", detail))

    def _warn(self, part: str, code: str, detail: str) -> None:
        self._findings.append(Finding(part, Verdict.WARNING, code, detail))

    def _failed(self, part: str, code: str, detail: str) -> None:
        self._findings.append(Finding(part, Verdict.FAILED, code, detail))
