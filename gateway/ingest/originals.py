"""Originals: the uploaded bytes, exactly those or none."""

import hashlib
import re

from anyio import to_thread

from gateway.errors import DocumentRejected, NotFound
from gateway.ingest.objects import ObjectStore

#: the reason
ORIGINAL_LOST = "original_lost"
#: how an original's key ends: the SHA-256 of the bytes that were uploaded
_SHA256 = re.compile(r"[0-9a-f]{64}")


async def original(objects: ObjectStore, key: str) -> bytes:
    """Raises DocumentRejected when the bytes aren't those that were uploaded."""
    try:
        content = await objects.get(key)
    except NotFound as error:
        raise DocumentRejected(ORIGINAL_LOST, "its original is lost; upload it again") from error
    name = key.rpartition("/")[2]
    if _SHA256.fullmatch(name) and await to_thread.run_sync(_sha256, content) != name:
        raise DocumentRejected(ORIGINAL_LOST, "its original was damaged in the store; upload it again")
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
