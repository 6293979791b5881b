"""The manifest hash: what a release holds, as one number that a document can leave and enter.

It is the sum of every entry's SHA-256 modulo 2**256 (AdHash: Bellare and Micciancio, "A new paradigm for
collision-free hashing", 1997), so that a document's change costs that document and not the whole base. Two
different releases don't share one by accident. It doesn't withstand somebody who may choose very many
entries until two sums meet (Wagner's generalized birthday, about 2**32 steps). Entries come from our own
catalog, and nothing is decided by it: whether there is anything to build is told document by document.

Hashes stored before this form have no prefix; the first change of such a release makes its hash anew.
"""

import hashlib
from collections.abc import Iterable, Iterator

from gateway.ingest.plan import PlannedDocument

#: chunk_id, content_hash, acl_class, approval
Entry = tuple[str, str, int, str]

_FORM = "sum:"
_MODULUS = 1 << 256


def manifest_hash(entries: Iterable[Entry]) -> str:
    """Of entries in any order."""
    return _written(sum(map(_number, entries)))


def entries_of(documents: Iterable[PlannedDocument]) -> Iterator[Entry]:
    return (
        (entry.chunk_id, entry.content_hash, document.acl_class, document.approval)
        for document in documents
        for entry in document.manifest
    )


def changed_hash(stored: str, gone: Iterable[Entry], come: Iterable[Entry] = ()) -> str | None:
    """The hash after some entries have gone and others come; None when only counting all entries again can
    tell, because it was stored in the form before this one.
    """
    if not stored.startswith(_FORM):
        return None
    before = int(stored.removeprefix(_FORM), 16)
    return _written(before - sum(map(_number, gone)) + sum(map(_number, come)))


def _number(entry: Entry) -> int:
    """The parts but the last have no NUL, so no two entries share a text."""
    chunk_id, content_hash, acl_class, approval = entry
    text = f"{chunk_id}\0{content_hash}\0{acl_class}\0{approval}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def _written(total: int) -> str:
    return f"{_FORM}{total % _MODULUS:064x}"
