"""Vectors are used again within a tenant only: nothing counted or reported tells of another one's texts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.ingest.task import TaskClaim, TaskState
from gateway.ingest.vectors import text_hash
from gateway.ingest.version import BuiltVersion
from gateway.retrieval.chunk import stable_hash
from tests.acceptance.doors import MULTIPART, multipart
from tests.harness.serving import serving_world
from tests.harness.wire import request
from tests.harness.world import World
from tests.integration.import_world import TENANT, TEXTS, Altered, Clock, ImportWorld, RecordingEmbedder

OFFER = "# Offer\n\nThe company will be sold for 42 million on Friday.\n"


@dataclass(frozen=True)
class Importer:
    """Who imports, releases and deletes for one tenant, over HTTP."""

    world: World
    port: int
    tenant: str

    async def call(self, method: str, path: str, **sent: Any) -> tuple[str, Any]:
        """Where the answer points to, and its JSON."""
        token = self.world.token(tenant=self.tenant, subject="bob", scopes=("ingest", "release"))
        head, answer = await request(self.port, method, path, token=token, **sent)
        assert head.status < 300, answer
        await self.world.work()
        return head.headers.get("location", ""), json.loads(answer) if answer else None

    async def upload(self, text: str = OFFER, knowledge_base: str = "deals") -> dict[str, int]:
        """How many of its release's vectors were there, and how many were made."""
        fields = [("knowledge_base", knowledge_base), ("allow", "public"), ("activate", "true")]
        body = multipart([("file", text, "offer.md"), *fields])
        await self.call("POST", "/v1/documents", body=body, headers={"Content-Type": MULTIPART})
        _, listed = await self.call("GET", f"/v1/releases?knowledge_base={knowledge_base}")
        newest = listed["releases"][0]
        _, diff = await self.call("GET", f"/v1/releases/{newest['release_id']}/diff")
        assert diff["vectors"] == newest["barrier"]["vectors"]
        return dict(diff["vectors"])

    async def delete(self) -> Any:
        """The clean-up's report."""
        _, listed = await self.call("GET", "/v1/documents?knowledge_base=deals")
        task, _ = await self.call("DELETE", f"/v1/documents/{listed['documents'][0]['document_id']}")
        return (await self.call("GET", task))[1]["report"]


async def test_a_guessed_text_looks_the_same_whether_another_tenant_has_it_or_not() -> None:
    """In what a release counts, in what two releases differ by, and in what a clean-up tells."""
    world = World()
    async with serving_world(world) as port:
        owner, right, wrong = (Importer(world, port, name) for name in ("acme", "globex", "initech"))
        await owner.upload()
        guess = OFFER.replace("42", "41")
        assert await right.upload() == await wrong.upload(guess) == {"reused": 0, "embedded": 1}
        told = await right.delete()
        assert told == await wrong.delete()
        assert told["removed"] == {
            "rows": 1,
            "originals": 1,
            "chunk_files": 1,
            "vector_files": 1,
            "quotes": 0,
            "answers": 0,
        }
        assert await owner.upload(knowledge_base="more") == {"reused": 1, "embedded": 0}


def under_the_old_names(built: BuiltVersion, texts: Sequence[str]) -> BuiltVersion:
    """As it was built when a text had one name for all tenants."""
    old: Mapping[str, str] = {text_hash(TENANT, text): stable_hash(text) for text in texts}
    return replace(
        built,
        manifest=tuple(replace(entry, text_hash=old[entry.text_hash]) for entry in built.manifest),
        new_vectors={old[name]: place for name, place in built.new_vectors.items()},
    )


async def test_what_was_built_under_the_old_names_keeps_its_vectors() -> None:
    """Builds find them, make lost ones again, and fill a new space from them, without another import."""
    clock = Clock()
    imports = ImportWorld(MemoryCatalog(clock), MemoryVectors(), MemoryObjects(), clock, real=False)

    async def complete(real: Any, claim: TaskClaim, built: Sequence[BuiltVersion]) -> None:
        await real(claim, [under_the_old_names(one, imports.embedder.texts) for one in built])

    before = imports.worker(catalog=Altered(imports.catalog, complete_versions=complete))
    await imports.work(await imports.accept(TEXTS), before)
    first, texts = await imports.dump(), sorted(imports.embedder.texts)
    places = await imports.catalog.vector_places(imports.space.space_id, [stable_hash(t) for t in texts])
    assert len(places) == len(texts)
    imports.embedder.texts.clear()
    await imports.learn({"more": "# More\n\nOne more rule.\n"})
    assert len(imports.embedder.texts) == 1
    assert (await imports.dump()).without_revision("more.md") == first.without_revision()
    for key in {place.object_key for place in places.values()}:
        await imports.objects.delete(key)
    imports.embedder.texts.clear()
    await imports.learn({"last": "# Last\n\nThe last rule.\n"})
    assert len(imports.embedder.texts) == len(texts) + 1
    assert (await imports.dump()).without_revision("more.md", "last.md") == first.without_revision()
    imports.embedder = RecordingEmbedder("fixed-32-v2")
    assert (await imports.build_release()).state is TaskState.SUCCEEDED
    assert set(texts) < set(imports.embedder.texts)
