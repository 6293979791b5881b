"""Grounds for worlds: the twins, and the parts of a real side, opened once in the test's own process."""

import itertools
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from gateway.adapters.children.build_child import ChildParser
from gateway.adapters.sql.catalog import open_catalog
from gateway.bootstrap.parts import PartsOpener
from gateway.context import Deadline
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.embedding import Embedder, Vector
from gateway.settings import Settings
from tests.harness.sides import PATIENT, Side, settings_of
from tests.harness.world import Ground, World

#: the ids of the tests that run on twins as well as on both sides
GROUNDS = ("memory", "embedded", "servers")

_CATALOG = "catalog.db"


class Worlds(Protocol):
    """Makes worlds on one ground. ``name`` is one of GROUNDS."""

    @property
    def name(self) -> str: ...

    def world(self, **options: Any) -> AbstractAsyncContextManager[World]:
        """A world with nothing in it; ``options`` as World takes them, but for parts of the ground."""
        ...


class MemoryWorlds:
    """Over twins."""

    name = "memory"

    @asynccontextmanager
    async def world(self, **options: Any) -> AsyncIterator[World]:
        yield World(**options)


class CountedEmbedder:
    """An Embedder that counts its calls, as its twin does."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.calls = 0

    @property
    def space(self) -> EmbeddingSpace:
        return self._embedder.space

    @property
    def max_sensitivity(self) -> int:
        return self._embedder.max_sensitivity

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Sequence[Vector]:
        self.calls += 1
        return await self._embedder.embed(texts, deadline)


class SideWorlds:
    """Over the open parts of a side; each world has a catalog of its own."""

    def __init__(self, side: Side, environment: Mapping[str, str], folder: Path, ground: Ground) -> None:
        self.name = side.name
        self._side = side
        self._environment = environment
        self._folder = folder
        self._ground = ground
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def world(self, **options: Any) -> AsyncIterator[World]:
        settings = self._fresh_settings()
        async with AsyncExitStack() as stack:
            catalog = await PartsOpener(settings, stack).catalog()
            embedder = CountedEmbedder(self._ground.embedder)
            ground = replace(self._ground, catalog=catalog, embedder=embedder)
            yield World(ground=ground, **{**settings.model_dump(exclude_unset=True), **options})

    def _fresh_settings(self) -> Settings:
        folder = self._folder / f"world-{next(self._numbers)}"
        folder.mkdir()
        shutil.copyfile(self._folder / _CATALOG, folder / _CATALOG)  # migrating takes longer than most tests
        return settings_of({**self._environment, **self._side.fresh_catalog(folder)})


@asynccontextmanager
async def opened(side: Side, folder: Path) -> AsyncIterator[SideWorlds]:
    """The parts of ``side``, open until the end of the block."""
    environment = {"GATEWAY_DATA_DIR": str(folder), **PATIENT, **await side.fresh()}
    settings = settings_of(environment)
    async with open_catalog(folder / _CATALOG):
        pass
    async with AsyncExitStack() as stack:
        opener = PartsOpener(settings, stack)
        vectors = await opener.vectors(may_create=True)
        with pytest.MonkeyPatch.context() as patch:  # the object store reads its credentials when it opens
            for name, value in environment.items():
                patch.setenv(name, value)
            objects = await opener.objects()
        parser = ChildParser(cap_s=settings.parse_cap_s, max_bytes=settings.document_max_bytes)
        stack.push_async_callback(parser.aclose)
        embedder, offline_embedder = await opener.models.embedder(), opener.models.offline_embedder()
        pepper = opener.pepper()
        assert pepper is not None, "development makes one"
        ground = Ground(
            catalog=None,  # each world's own
            vectors=vectors,
            objects=objects,
            embedder=embedder,
            offline_embedder=offline_embedder,
            parser=parser,
            config=opener.config(embedder.space),
            quota=opener.quota(),
            tokens=opener.token_verifier(),
            pepper=pepper,
            sign=partial(side.sign, folder),
        )
        yield SideWorlds(side, environment, folder, ground)
