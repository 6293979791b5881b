"""Room on a disk: what would take of the reserve isn't stored, and a probe tells why nothing can be."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.adapters.objects import open_objects
from gateway.adapters.room import Room
from gateway.errors import ObjectStoreUnavailable, StorageFull

#: more than any disk has
ENDLESS = 1 << 62
PROBE = """
import anyio, pathlib, sys
from gateway.adapters.room import Room
from gateway.errors import StorageFull
try:
    anyio.run(Room(pathlib.Path(sys.argv[1]), 0).ping)
except StorageFull as error:
    print(error.detail)
"""


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_there_is_room_and_nothing_is_left_of_the_look(tmp_path: Path) -> None:
    """A probe writes, and takes nothing."""
    room = Room(tmp_path, 1)
    await room.ping()
    await room.spare()
    room.check(1)
    assert files(tmp_path) == []


async def test_the_reserve_is_left_alone(tmp_path: Path) -> None:
    """No put takes of it, and what would fit beside it is stored. It keeps nobody from starting."""
    room = Room(tmp_path, ENDLESS)
    await room.ping()
    with pytest.raises(StorageFull):
        await room.spare()
    with pytest.raises(StorageFull):
        Room(tmp_path, 1).check(ENDLESS)
    Room(tmp_path, 0).check(ENDLESS)
    objects = open_objects(tmp_path, reserve_bytes=ENDLESS)
    await objects.ping()
    before = files(tmp_path)
    with pytest.raises(StorageFull):
        await objects.put("originals/a", b"text")
    assert files(tmp_path) == before
    await open_objects(tmp_path / "roomy", reserve_bytes=1).put("originals/a", b"text")
    assert len(files(tmp_path / "roomy")) == 1


async def test_a_folder_that_can_not_be_written_to_says_why(tmp_path: Path) -> None:
    """In the system's words, and not that it is full."""
    for odd in (tmp_path / "missing", Path(__file__)):
        with pytest.raises(ObjectStoreUnavailable) as caught:
            await Room(odd, 0).ping()
        assert not isinstance(caught.value, StorageFull)
        assert "can't be written to: " in caught.value.detail


def test_a_disk_that_takes_nothing_is_full(tmp_path: Path) -> None:
    """Though the system counts free blocks, as under a quota."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    command = [sys.executable, "-c", PROBE, str(tmp_path)]
    ended = subprocess.run(command, preexec_fn=limited, capture_output=True, text=True, check=True)
    assert ended.stdout == "the disk of the data folder is full\n"
    assert files(tmp_path) == []
