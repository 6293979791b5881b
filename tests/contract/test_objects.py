"""The object store's contract, over the in-memory twin, a local folder and an S3-compatible server."""

import asyncio
import time
from collections.abc import Collection
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from obstore.store import LocalStore

from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.objects import StoredObjects, open_objects, stored_path, sync
from gateway.errors import InvalidField, NotFound, ObjectStoreUnavailable
from gateway.ingest.objects import ObjectStore
from tests.harness.s3 import S3Server

KEYS = [
    "originals/tenant/ab12.md",
    "a b/C#.md",
    "c#1",
    "100%/a%20b=20",
    "知识/🦊.pdf",
    "CON:*?<>|",
    "...",
    "-rf",
    'quote"\n',
]
BAD_KEYS = [
    "",
    "/etc/passwd",
    "../outside",
    "a/../../outside",
    "a/..",
    "./a",
    "a//b",
    "a/",
    "a\0b",
    "a\\..\\b",
    "a\ud800",
    "k" * 5000,
]


@pytest.fixture(params=["memory", "embedded", "real"])
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty store."""
    if request.param == "memory":
        return MemoryObjects()
    if request.param == "embedded":
        return open_objects(tmp_path / "objects")
    s3: S3Server = request.getfixturevalue("s3")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return open_objects(f"{s3.fresh_bucket()}/some/prefix")


@pytest.mark.parametrize("key", KEYS)
async def test_what_is_put_is_got(objects: ObjectStore, key: str) -> None:
    """Whole and unchanged, also when empty, and the newest content wins."""
    for content in (b"", bytes(range(256)) * 1000, b"short"):
        await objects.put(key, content)
        assert await objects.get(key) == content
    assert await objects.exists(key)


async def test_many_are_put_at_once(objects: ObjectStore) -> None:
    """All of them, and none when a key is no key."""
    contents = {key: key.encode() for key in KEYS}
    await objects.put_all(contents)
    assert {key: await objects.get(key) for key in KEYS} == contents
    await objects.put_all({})
    with pytest.raises(InvalidField):
        await objects.put_all({"good": b"x", "../bad": b"x"})
    assert not await objects.exists("good")


async def test_keys_that_look_alike_are_apart(objects: ObjectStore) -> None:
    """No encoding makes one of two keys."""
    keys = ["a b", "a=20b", "a%20b", "a_b", "a/b", "a=2fb"]
    for key in keys:
        await objects.put(key, key.encode())
    assert [await objects.get(key) for key in keys] == [key.encode() for key in keys]


async def test_a_missing_object_is_not_found(objects: ObjectStore) -> None:
    """Get raises, exists says no, delete is fine; a folder of objects is no object."""
    await objects.put("folder/object", b"x")
    for key in ("missing", "folder", "folder/other"):
        assert not await objects.exists(key)
        with pytest.raises(NotFound):
            await objects.get(key)
    await objects.delete("missing")
    await objects.delete("folder/object")
    assert not await objects.exists("folder/object")


async def listed(objects: ObjectStore, prefix: str) -> dict[str, int]:
    """Key -> size."""
    return {found.key: found.size_bytes async for found in objects.list(prefix)}


async def test_a_listing_shows_what_lies_below_a_folder(objects: ObjectStore) -> None:
    """Every key as it was put, with its size; a folder whose name only begins alike is another one."""
    assert await listed(objects, "originals") == {}
    for number, key in enumerate(KEYS):
        await objects.put(f"originals/{key}", b"x" * number)
    await objects.put("original", b"x")
    await objects.put("originals2/key", b"x")
    everything = {f"originals/{key}": number for number, key in enumerate(KEYS)}
    assert await listed(objects, "originals") == everything
    assert await listed(objects, "originals/知识") == {"originals/知识/🦊.pdf": KEYS.index("知识/🦊.pdf")}
    await objects.delete("originals/c#1")
    assert "originals/c#1" not in await listed(objects, "originals")
    assert len(await listed(objects, "")) == len(KEYS) + 1
    for bad in ("..", "a//b", "originals/"):
        with pytest.raises(InvalidField):
            await listed(objects, bad)


async def test_a_listing_goes_past_one_page(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets list a bounded number of keys at once: a thousand, and here three."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    keys = [f"many/{number}" for number in range(8)]
    for key in keys:
        await objects.put(key, b"")
    assert sorted(await listed(objects, "many")) == keys


async def test_putting_an_object_again_makes_it_new(objects: ObjectStore) -> None:
    """Its age counts from the last put, whatever the content."""
    began = time.time()
    await objects.put("a/key", b"same")
    [first] = [found.modified async for found in objects.list("a")]
    assert first >= began - 2  # S3 tells whole seconds
    with anyio.fail_after(20):
        modified = first
        while modified == first:
            await objects.put("a/key", b"same")
            [modified] = [found.modified async for found in objects.list("a")]
    assert modified > first


@pytest.mark.parametrize("key", BAD_KEYS)
async def test_a_key_that_leads_elsewhere_is_refused(objects: ObjectStore, key: str) -> None:
    """By every method, before anything is touched."""
    with pytest.raises(InvalidField):
        await objects.put(key, b"x")
    with pytest.raises(InvalidField):
        await objects.get(key)
    with pytest.raises(InvalidField):
        await objects.exists(key)
    with pytest.raises(InvalidField):
        await objects.delete(key)


async def test_a_large_object_is_whole(objects: ObjectStore) -> None:
    """The largest document that is taken by default, and its replacement by a small one."""
    content = bytes(range(256)) * 65_536
    await objects.put("large", content)
    assert await objects.get("large") == content
    await objects.put("large", b"small")
    assert await objects.get("large") == b"small"


async def test_a_reader_sees_one_whole_content(objects: ObjectStore) -> None:
    """While two writers replace an object, every read is all of one or all of the other."""
    contents = [bytes([i]) * 300_000 for i in (1, 2)]
    await objects.put("contested", contents[0])

    async def write(content: bytes) -> None:
        for _ in range(15):
            await objects.put("contested", content)

    writers = [asyncio.create_task(write(content)) for content in contents]
    while not all(writer.done() for writer in writers):
        assert await objects.get("contested") in contents
        await anyio.lowlevel.checkpoint()  # the twin itself never gives way
    await asyncio.gather(*writers)


def test_no_key_leaves_the_folder() -> None:
    """Stored paths are relative, plain and without dot segments."""
    for key in KEYS:
        path = stored_path(key)
        assert path.isascii()
        assert not {"", ".", ".."} & set(path.split("/"))


async def test_objects_lie_in_the_folder_under_readable_names(tmp_path: Path) -> None:
    """An operator finds an original by its key; a second opening finds all of it."""
    await open_objects(tmp_path).put("originals/a/b.md", b"text")
    assert (tmp_path / "originals" / "a" / "b.md").read_bytes() == b"text"
    assert await open_objects(str(tmp_path)).get("originals/a/b.md") == b"text"


async def test_a_disk_that_refuses_is_unavailable(tmp_path: Path) -> None:
    """A file where a folder should be: writing fails as ObjectStoreUnavailable, not as a vendor's error."""
    objects = open_objects(tmp_path)
    await objects.put("taken", b"x")
    with pytest.raises(ObjectStoreUnavailable):
        await objects.put("taken/below", b"x")
    with pytest.raises(ObjectStoreUnavailable):
        open_objects(tmp_path / "taken" / "folder")
    with pytest.raises(ObjectStoreUnavailable):
        open_objects("nonsense://bucket")


async def test_the_twin_can_be_unavailable() -> None:
    """As a caller would meet it."""
    objects = MemoryObjects()
    objects.available = False
    with pytest.raises(ObjectStoreUnavailable):
        await objects.get("key")


async def test_a_put_is_over_when_the_disk_has_it(tmp_path: Path) -> None:
    """Written, then synced with the folders above it, then said to be done; for every kind of key."""
    synced: list[tuple[str, bytes]] = []

    def settle(paths: Collection[str]) -> None:
        synced.extend((path, (tmp_path / path).read_bytes()) for path in paths)
        sync(tmp_path, paths)

    objects = StoredObjects(LocalStore(tmp_path), settle)
    for key in KEYS:
        await objects.put(key, key.encode())
        assert synced[-1] == (stored_path(key), key.encode())
    many = {f"more/{key}": key.encode() for key in KEYS[:3]}
    await objects.put_all(many)
    assert synced[-3:] == [(stored_path(key), content) for key, content in many.items()]


async def test_a_put_that_cant_be_synced_has_failed(tmp_path: Path) -> None:
    """Its task must not go on as if the object were safe."""

    def refuse(paths: Collection[str]) -> None:
        raise OSError(5, "the disk has an error")

    with pytest.raises(ObjectStoreUnavailable):
        await StoredObjects(LocalStore(tmp_path), refuse).put("key", b"x")


def test_syncing_reaches_every_folder_up_to_the_root(tmp_path: Path) -> None:
    """A missing file, which no power cut may leave behind, is an error and not silence."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path, ["a/b/c"])
    (tmp_path / "a" / "b" / "c").write_bytes(b"x")
    sync(tmp_path, ["a/b/c"])
