"""The doctor's comparison: whatever was lost beside the catalog is named, and what can be is made again."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.adapters.milvus.lite import LiteChild
from gateway.adapters.milvus.store import MilvusStore
from gateway.adapters.objects import open_objects
from gateway.adapters.sql.catalog import open_catalog
from gateway.adapters.sql.keeping import SqlKeeping
from gateway.admission.bulkhead import Bulkhead
from gateway.bootstrap.advice import advice_for
from gateway.bootstrap.comparing import examine_agreement
from gateway.bootstrap.doctor import Verdict
from gateway.ingest.embedding import TextVectors
from gateway.ingest.passages import Rebuilder
from gateway.ingest.validator import Validator
from gateway.keeping.comparing import Compared, Comparison
from gateway.keeping.refilling import Refill
from gateway.settings import Settings
from gateway.stream.revocation import RevocationKind
from tests.harness.process import run_command
from tests.integration.import_world import TENANT, TEXTS, Clock, ImportWorld


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MilvusStore]:
    """One Milvus Lite for all tests: each has revisions of its own."""
    child = LiteChild(tmp_path_factory.mktemp("lite"))
    await child.start()
    store = MilvusStore(child.endpoint)
    yield store
    await store.aclose()
    await child.aclose()


class Installation(ImportWorld):
    """An import path whose files a test can take away."""

    folder: Path

    async def compare(self, *, repair: bool = False) -> Compared:
        rebuilder = Rebuilder(self.objects, self.parser)
        return await Comparison(
            SqlKeeping(self.catalog.database),  # type: ignore[attr-defined]  # it is the one of SQL
            self.catalog,
            self.objects,
            self.vectors,
            filling=Refill(
                self.objects,
                self.catalog,
                self.vectors,
                Validator(self.vectors, self.vectors),
                rebuilder.rebuild,
            ),
            rebuilder=rebuilder,
            vectors=TextVectors(self.objects, self.embedder, Bulkhead("offline_embedding", 1, 60_000)),
            repair=repair,
        ).run()

    def files(self, kind: str) -> list[Path]:
        return sorted(path for path in (self.folder / kind).rglob("*") if path.is_file())


@pytest_asyncio.fixture(loop_scope="module")
async def here(tmp_path: Path, store: MilvusStore) -> AsyncIterator[Installation]:
    """An installation with a retired and an active release, over SQLite, a folder and Milvus Lite."""
    clock = Clock()
    async with open_catalog(tmp_path / "catalog.db", clock=clock) as catalog:
        world = Installation(catalog, store, open_objects(tmp_path / "objects"), clock, real=True)
        world.folder = tmp_path / "objects"
        await world.learn(TEXTS)
        await world.learn({"travel": "# travel\n\nFrom now on the travel rule is another one.\n"})
        for revision in await foreign(world):
            await store.drop(world.space, revision)
        yield world
        for revision in await store.revisions(world.space):
            await store.drop(world.space, revision)


async def foreign(world: Installation) -> list[str]:
    """Revisions of other tests, which no catalog names any more."""
    own = {release.kb_revision for release in await world.releases()}
    return [revision for revision in await world.vectors.revisions(world.space) if revision not in own]


def codes(compared: Compared) -> list[str]:
    return [found.code for found in compared.discrepancies]


@pytest.mark.soak
@pytest.mark.asyncio(loop_scope="module")
async def test_an_installation_that_is_well_agrees_with_itself(here: Installation) -> None:
    """Everything was looked at, and nothing was found."""
    compared = await here.compare()
    assert compared.discrepancies == []
    assert (compared.versions, compared.revisions) == (4, 2)
    assert compared.rows == sum([release.chunks for release in await here.releases()])
    assert compared.citations > 0


def lose_original(here: Installation) -> None:
    here.files("originals")[0].unlink()


def damage_original(here: Installation) -> None:
    here.files("originals")[0].write_bytes(b"something else")


def lose_chunks(here: Installation) -> None:
    here.files("chunks")[0].unlink()


def damage_chunks(here: Installation) -> None:
    here.files("chunks")[0].write_bytes(b'{"passages": []}')


def lose_vectors(here: Installation) -> None:
    here.files("vectors")[0].unlink()


def zero_vectors(here: Installation) -> None:
    file = here.files("vectors")[0]
    file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize(
    ("damage", "code", "repairable"),
    [
        (lose_original, "original_missing", False),
        pytest.param(damage_original, "original_damaged", False, marks=pytest.mark.soak),
        (lose_chunks, "chunk_file_missing", True),
        pytest.param(damage_chunks, "chunk_file_damaged", True, marks=pytest.mark.soak),
        pytest.param(lose_vectors, "vectors_missing", True, marks=pytest.mark.soak),
        pytest.param(zero_vectors, "vectors_missing", True, marks=pytest.mark.soak),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_lost_object_is_named_and_made_again(
    here: Installation, damage: Callable[[Installation], None], code: str, repairable: bool
) -> None:
    """Once without repair, once with it; then all agrees again, or only the original is still missing."""
    before = await here.dump()
    damage(here)
    found = await here.compare()
    assert set(codes(found)) == {code}
    assert not any(one.repaired for one in found.discrepancies)
    assert advice_for(code)
    repaired = await here.compare(repair=True)
    assert all(bool(one.repaired) is repairable for one in repaired.discrepancies)
    assert set(codes(await here.compare())) == (set() if repairable else {code})
    assert await here.dump() == before


@pytest.mark.asyncio(loop_scope="module")
async def test_rows_that_are_missing_or_too_many_or_nobodys_are_put_right(here: Installation) -> None:
    """Of the active release, of one to go back to, and of no release at all."""
    before = await here.dump()
    newest, first = await here.releases()
    chunk = before.chunks[0]
    kb_id = await here.kb_id()
    await here.vectors.delete_document(here.space, newest.kb_revision, TENANT, kb_id, chunk.document_id)
    await here.vectors.drop(here.space, first.kb_revision)
    assert codes(await here.compare()) == ["rows_missing", "rows_missing"]
    assert all(one.repaired for one in (await here.compare(repair=True)).discrepancies)
    assert codes(await here.compare()) == []
    await here.catalog.mark_reclaimed(TENANT, first.release_id)
    assert codes(await here.compare()) == ["rows_orphaned"]
    assert all(one.repaired for one in (await here.compare(repair=True)).discrepancies)
    assert set(await here.vectors.revisions(here.space)) == {newest.kb_revision}
    assert await here.dump() == before


@pytest.mark.asyncio(loop_scope="module")
async def test_a_lost_chunk_file_and_original_leave_a_clear_word(here: Installation) -> None:
    """What can't be made again says which document it is, and breaks nothing else."""
    before = await here.dump()
    for kind in ("chunks", "originals"):
        for file in here.files(kind):
            if b"refund" in file.read_bytes():
                file.unlink()
    repaired = await here.compare(repair=True)
    assert sorted(codes(repaired)) == ["chunk_file_missing", "original_missing"]
    assert all("refund.md" in one.detail and not one.repaired for one in repaired.discrepancies)
    assert await here.dump() == before


@pytest.mark.soak
@pytest.mark.asyncio(loop_scope="module")
async def test_a_late_journal_is_told(here: Installation) -> None:
    """An act that waits for more than a minute."""
    here.clock.advance(-300)
    await here.catalog.revoke(TENANT, RevocationKind.USER, "eve", "left", "ann")
    assert codes(await here.compare()) == ["journal_late"]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_comparison_needs_the_embedded_parts_for_itself(here: Installation) -> None:
    """While somebody serves from the folder it says so and looks at nothing."""
    (finding,) = await examine_agreement(Settings(data_dir=here.folder.parent), repair=True)
    assert (finding.verdict, finding.code) == (Verdict.FAILED, "data_dir_in_use")
    assert "stop it" in finding.advice


@pytest.mark.soak
async def test_the_command_shows_the_comparison_beside_everything_else(tmp_path: Path) -> None:
    """An empty folder agrees with itself; a repair without a comparison is refused."""
    ended = await run_command("doctor", "--compare", "--json", "--data-dir", str(tmp_path / "data"))
    assert {one["part"] for one in ended.lines} >= {"catalog", "journal", "agreement"}
    assert "0 versions" in ended.lines[-1]["detail"]
    assert ended.code == 0
    assert (await run_command("doctor", "--repair")).code == 2
