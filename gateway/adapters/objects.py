"""ObjectFolder: originals, chunk files and vector files in a local folder or a bucket, through obstore.

In a folder a put writes a neighbour file, renames it and syncs it, so a reader sees the old content or
the new, and a power cut after the put takes nothing away. A cut during it may leave a damaged object:
whoever reads one checks it.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath

import obstore
from anyio import to_thread
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from gateway.errors import InvalidField, NotFound, ObjectStoreUnavailable

MAX_KEY_BYTES = 900
_MAX_SEGMENT_BYTES = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def stored_path(key: str) -> str:
    """Where a key lies: plain segments stay, every other character becomes ``=`` + hex of its UTF-8.

    So any store takes it, and no two keys share a place. Raises InvalidField for an empty, absolute or
    too long key, an empty, ``.`` or ``..`` segment, NUL, backslash and lone surrogates.
    """
    if not isinstance(key, str) or "\0" in key or "\\" in key:
        raise InvalidField("an object key holds a character that is not allowed")
    segments = key.split("/")
    if any(segment in ("", ".", "..") for segment in segments):
        raise InvalidField("an object key is a relative path without empty or dot segments")
    try:
        stored = [_UNSAFE.sub(_escaped, segment) for segment in segments]
    except UnicodeEncodeError as error:
        raise InvalidField("an object key holds a character that is not allowed") from error
    path = "/".join(stored)
    if len(path) > MAX_KEY_BYTES or max(map(len, stored)) > _MAX_SEGMENT_BYTES:
        raise InvalidField("an object key is too long")
    return path


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"={byte:02x}" for byte in match.group().encode())


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound() from error
    except (BaseError, OSError) as error:
        raise ObjectStoreUnavailable() from error


def sync(folder: Path, path: str) -> None:
    """Waits until the disk has the file and its name: obstore itself never asks for that."""
    for below in (path, *map(str, PurePosixPath(path).parents)):
        descriptor = os.open(folder / below, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ObjectFolder:
    """ObjectStore over any obstore store. Every method raises InvalidField for a bad key."""

    def __init__(self, store: obstore.store.ObjectStore, settle: Callable[[str], None] | None = None) -> None:
        """``settle`` makes a stored path durable, in a thread; a bucket's put is durable by itself."""
        self._store = store
        self._settle = settle

    async def put(self, key: str, content: bytes) -> None:
        path = stored_path(key)
        try:
            with _translated():
                await obstore.put_async(self._store, path, content)
                if self._settle is not None:
                    await to_thread.run_sync(self._settle, path)
        except NotFound as error:  # the folder itself is gone
            raise ObjectStoreUnavailable() from error

    async def get(self, key: str) -> bytes:
        path = stored_path(key)
        with _translated():
            found = await obstore.get_async(self._store, path)
            return bytes(await found.bytes_async())

    async def exists(self, key: str) -> bool:
        path = stored_path(key)
        try:
            with _translated():
                await obstore.head_async(self._store, path)
        except NotFound:
            return False
        return True

    async def delete(self, key: str) -> None:
        path = stored_path(key)
        try:
            with _translated():
                await obstore.delete_async(self._store, path)
        except NotFound:
            return


def open_objects(url_or_path: str | Path) -> ObjectFolder:
    """A folder (made when missing), or a bucket by its URL (``s3://``, ``gs://``, ``az://``).

    Raises ObjectStoreUnavailable when the folder can't be made or the URL means nothing.
    """
    try:
        with _translated():
            if isinstance(url_or_path, str) and "://" in url_or_path:
                return ObjectFolder(from_url(url_or_path))
            folder = Path(url_or_path)
            return ObjectFolder(LocalStore(folder, mkdir=True), partial(sync, folder.absolute()))
    except (NotFound, ValueError) as error:
        raise ObjectStoreUnavailable("the object store can't be opened") from error
