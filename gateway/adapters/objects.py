"""ObjectFolder: originals, chunk files and vector files in a local folder or a bucket, through obstore.

In a folder a put writes a neighbour file and renames it, so a reader sees the old content or the new;
after a power cut either may be there (nothing is synced, and the catalog's import can be repeated).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import obstore
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


class ObjectFolder:
    """ObjectStore over any obstore store. Every method raises InvalidField for a bad key."""

    def __init__(self, store: obstore.store.ObjectStore) -> None:
        self._store = store

    async def put(self, key: str, content: bytes) -> None:
        path = stored_path(key)
        try:
            with _translated():
                await obstore.put_async(self._store, path, content)
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
            return ObjectFolder(LocalStore(Path(url_or_path), mkdir=True))
    except (NotFound, ValueError) as error:
        raise ObjectStoreUnavailable("the object store can't be opened") from error
