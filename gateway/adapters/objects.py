"""StoredObjects: originals, chunk files and vector files in a local folder or a bucket, through obstore.

In a folder a put writes a neighbour file, renames it and syncs it, so a reader sees the old content or
the new, and a power cut after the put takes nothing away. A cut during it may leave a damaged object:
whoever reads one checks it. In a bucket a put is one request, which counts whole or not at all.
"""

import ipaddress
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import anyio
import obstore
from anyio import to_thread
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, from_url

from gateway.adapters.room import Room
from gateway.errors import ConfigurationError, InvalidField, NotFound, ObjectStoreUnavailable
from gateway.ingest.objects import StoredObject

MAX_KEY_BYTES = 900
_MAX_SEGMENT_BYTES = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_ESCAPED = re.compile(r"(?:=[0-9a-f]{2})+")
_LISTED = 1000
_PROBES = "readiness"
#: one a process, however often it is asked: a probe that was cut short leaves nothing that grows
_PROBE = uuid.uuid4().hex
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one call of a bucket may take. obstore's own would go on for three minutes.

    ``read_s`` is a silence of the server, from the request to its reply too, so it must suffice to
    send the largest object. ``total_s`` is the end of it, retries included.
    """

    connect_s: float = 2.0
    read_s: float = 10.0
    request_s: float = 20.0
    total_s: float = 30.0
    retries: int = 2


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


def key_at(path: str) -> str | None:
    """The key that lies at a path; None for what no put of ours has left there."""
    try:
        key = _ESCAPED.sub(lambda found: bytes.fromhex(found.group().replace("=", "")).decode(), path)
        return key if stored_path(key) == path else None
    except (UnicodeDecodeError, InvalidField):
        return None


@contextmanager
def _translated(*, quotable: bool = True) -> Iterator[None]:
    """A bucket's vendor errors aren't ``quotable``: they hold requests and replies, tokens among them."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound() from (error if quotable else None)
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        raise ObjectStoreUnavailable("access to the object store was denied") from (
            error if quotable else None
        )
    except TimeoutError as error:
        raise ObjectStoreUnavailable("the object store didn't answer in time") from error
    except (BaseError, OSError) as error:
        raise ObjectStoreUnavailable() from (error if quotable else None)


def sync(folder: Path, paths: Collection[str]) -> None:
    """Waits until the disk has the files and their names: obstore itself never asks for that."""
    above = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    for below in (*paths, *above):
        descriptor = os.open(folder / below, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class StoredObjects:
    """ObjectStore over any obstore store. Every method raises InvalidField for a bad key.

    A cancelled call ends on the wire as well; a put that was under way then counts whole or not at all.
    """

    def __init__(
        self,
        store: obstore.store.ObjectStore,
        settle: Callable[[Collection[str]], None] | None = None,
        total_s: float | None = None,
        room: Room | None = None,
    ) -> None:
        """``settle`` makes stored paths durable, in a thread; a bucket's put is durable by itself.

        ``total_s`` is the longest a call may take; None = as long as it takes. ``room``: that of the disk.
        """
        self._store = store
        self._settle = settle
        self._room = room
        self._total_s = total_s
        self._proven = False

    async def put(self, key: str, content: bytes) -> None:
        await self.put_all({key: content})

    async def put_all(self, contents: Mapping[str, bytes]) -> None:
        paths = {stored_path(key): content for key, content in contents.items()}
        size = sum(map(len, paths.values()))
        if self._room is not None and size:  # a probe, which is empty, takes nothing of the reserve
            await to_thread.run_sync(self._room.check, size)
        try:
            for path, content in paths.items():
                with self._bounded():
                    # in parts, an upload that is cut would leave its parts behind
                    await obstore.put_async(self._store, path, content, use_multipart=False)
            if self._settle is not None and paths:
                with self._bounded():
                    await to_thread.run_sync(self._settle, paths.keys())
        except NotFound:
            raise _no_bucket() from None
        except ObjectStoreUnavailable:
            if self._room is not None:
                await self._room.ping()  # knows whether its disk is the reason
            raise

    async def get(self, key: str) -> bytes:
        path = stored_path(key)
        try:
            with self._bounded():
                found = await obstore.get_async(self._store, path)
                return bytes(await found.bytes_async())
        except NotFound:
            await self._check_bucket()
            raise

    async def exists(self, key: str) -> bool:
        path = stored_path(key)
        try:
            with self._bounded():
                await obstore.head_async(self._store, path)
        except NotFound:
            await self._check_bucket()
            return False
        return True

    async def delete(self, key: str) -> None:
        path = stored_path(key)
        try:
            with self._bounded():
                await obstore.delete_async(self._store, path)
        except NotFound:
            await self._check_bucket()

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        folder = stored_path(prefix) if prefix else None
        with self._bounded():
            pages = obstore.list(self._store, folder, chunk_size=_LISTED)
        while True:
            try:
                with self._bounded():
                    page = await anext(pages, None)
            except NotFound:
                raise _no_bucket() from None
            if page is None:
                return
            for found in page:
                key = key_at(found["path"])
                if key is not None:
                    yield StoredObject(key, found["size"], found["last_modified"].timestamp())

    async def ping(self) -> None:
        """The store is there and this account may list, write, read and delete. For readiness.

        After it has proved the rights once it only looks, until something fails. Raises
        ObjectStoreUnavailable.
        """
        await self._check_bucket()
        if not self._proven:
            await self._prove_rights()
            self._proven = True

    async def _check_bucket(self) -> None:
        """A missing bucket answers like a missing object, but can't be listed."""
        try:
            with self._bounded():
                await obstore.list_with_delimiter_async(self._store, _PROBES)
        except NotFound:
            raise _no_bucket() from None

    async def _prove_rights(self) -> None:
        key = f"{_PROBES}/{_PROBE}"
        await self.put(key, b"")
        try:
            await self.get(key)
        except NotFound:
            raise ObjectStoreUnavailable("the object store doesn't keep what is put into it") from None
        await self.delete(key)

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        try:
            with _translated(quotable=self._total_s is None), anyio.fail_after(self._total_s):
                yield
        except ObjectStoreUnavailable:
            self._proven = False
            raise


def _no_bucket() -> ObjectStoreUnavailable:
    return ObjectStoreUnavailable("the bucket or folder of the object store doesn't exist")


def open_objects(
    url_or_path: str | Path, patience: Patience | None = None, *, reserve_bytes: int = 0
) -> StoredObjects:
    """A folder (made when missing), or a bucket by its URL (``s3://bucket/prefix``, ``gs://``, ``az://``).

    ``reserve_bytes`` of a folder's disk stay free: a put that would take of them raises StorageFull.

    A bucket's credentials and endpoint come from the environment (``AWS_ACCESS_KEY_ID``,
    ``AWS_ENDPOINT_URL``, …), never from the URL. Nothing is asked yet: see ``ping``. Raises
    ObjectStoreUnavailable when the folder can't be made or the URL means nothing, ConfigurationError
    when the URL carries credentials or the endpoint is neither https nor on loopback.
    """
    try:
        if isinstance(url_or_path, str) and "://" in url_or_path:
            with _translated(quotable=False):
                return _open_bucket(url_or_path, patience or Patience())
        with _translated():
            folder = Path(url_or_path).absolute()
            store = LocalStore(folder, mkdir=True)
            return StoredObjects(store, partial(sync, folder), room=Room(folder, reserve_bytes))
    except (NotFound, ValueError):
        raise ObjectStoreUnavailable("the object store can't be opened") from None


def _open_bucket(url: str, patience: Patience) -> StoredObjects:
    if "@" in urlsplit(url).netloc or urlsplit(url).query:
        raise ConfigurationError(
            "object_store_url", "the object store's credentials belong into the environment, not its URL"
        )
    store = from_url(
        url,
        client_options={
            "allow_http": _http_allowed(os.environ),
            "connect_timeout": timedelta(seconds=patience.connect_s),
            "read_timeout": timedelta(seconds=patience.read_s),
            "timeout": timedelta(seconds=patience.request_s),
        },
        retry_config={
            "max_retries": patience.retries,
            "retry_timeout": timedelta(seconds=patience.total_s),
            "backoff": {"max_backoff": timedelta(seconds=1)},
        },
    )
    return StoredObjects(store, total_s=patience.total_s)


def _http_allowed(environment: Mapping[str, str]) -> bool:
    """Whether requests may go unencrypted. Raises ConfigurationError when they would have to and may not."""
    if environment.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on"):
        return True
    endpoints = [urlsplit(environment.get(name, "")) for name in _ENDPOINTS]
    plain = [endpoint.hostname or "" for endpoint in endpoints if endpoint.scheme == "http"]
    if all(map(_is_loopback, plain)):
        return bool(plain)
    raise ConfigurationError(
        "object_store_needs_https",
        "AWS_ENDPOINT_URL is neither https nor on loopback (AWS_ALLOW_HTTP permits it)",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
