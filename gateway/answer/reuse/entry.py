"""An entry: a kept answer as bytes. What comes back is exactly what was kept under its key, or Damaged."""

import zlib

import orjson

from gateway.access.authorizer import DocumentRef
from gateway.answer.cache import Damaged
from gateway.answer.evidence import RefusalReason
from gateway.answer.outcome import Ending, KeptAnswer, Opening
from gateway.answer.reuse.strict_json import Members
from gateway.stream.protocol import CitedSource, Searched, Source, Usage

_FORMAT = 1
_PLAIN, _PACKED = b"\x00", b"\x01"
_PACKED_FROM_BYTES = 1024
#: what is larger stays as it is, and no store takes it; so nothing may be larger when it is unpacked
_UNPACKED_BYTES = 4 * 1024 * 1024
_REASONS = frozenset(reason.value for reason in RefusalReason)


class Entries:
    """Implements EntryForm: a byte that says whether it is packed, then JSON with the key's digest in it."""

    def encode(self, digest: str, kept: KeptAnswer) -> bytes:
        """``kept`` is shared and may be kept; that isn't written down."""
        content = orjson.dumps(_written(digest, kept))
        if _PACKED_FROM_BYTES <= len(content) <= _UNPACKED_BYTES:
            return _PACKED + zlib.compress(content)
        return _PLAIN + content

    def decode(self, digest: str, content: bytes) -> KeptAnswer:
        """Raises Damaged, and nothing else whatever the bytes are."""
        try:
            written = Members(orjson.loads(_unpacked(content)))
        except orjson.JSONDecodeError:
            raise Damaged from None
        if written.whole("format") != _FORMAT or written.text("key") != digest:
            raise Damaged
        kept = _kept(written)
        written.end()
        _check(kept)
        return kept


def _unpacked(content: bytes) -> bytes:
    if content[:1] == _PLAIN:
        return content[1:]
    if content[:1] != _PACKED:
        raise Damaged
    unpacking = zlib.decompressobj()
    try:
        unpacked = unpacking.decompress(content[1:], _UNPACKED_BYTES)
    except zlib.error:
        raise Damaged from None
    if not unpacking.eof or unpacking.unused_data:
        raise Damaged
    return unpacked


# -- what is written --------------------------------------------------------------------------------


def _written(digest: str, kept: KeptAnswer) -> dict[str, object]:
    opening, ending = kept.opening, kept.ending
    return {
        "format": _FORMAT,
        "key": digest,
        "made_at": kept.made_at,
        "model": opening.model,
        "sources": opening.sources,
        "documents": sorted([ref.document_id, ref.document_version] for ref in opening.documents),
        "text": kept.text,
        "reasons": ending.reasons,
        "citations": ending.citations,
        "usage": ending.usage,
        "searched": ending.searched,
    }


# -- what is read -----------------------------------------------------------------------------------


def _kept(written: Members) -> KeptAnswer:
    return KeptAnswer(
        opening=Opening(
            model=written.text("model"),
            sources=tuple(map(_source, written.inners("sources"))),
            documents=frozenset(map(_document, written.items("documents"))),
        ),
        text=written.text("text"),
        ending=Ending(
            reasons=written.texts("reasons"),
            citations=tuple(map(_citation, written.inners("citations"))),
            usage=_usage(written.inner("usage")),
            searched=None if written.is_none("searched") else _searched(written.inner("searched")),
        ),
        made_at=written.number("made_at"),
    )


def _document(item: object) -> DocumentRef:
    match item:
        case [str(document_id), int(version)] if type(version) is int:
            return DocumentRef(document_id, version)
    raise Damaged


def _source(written: Members) -> Source:
    source = Source(
        n=written.whole("n", least=1),
        chunk_id=written.text("chunk_id"),
        document_id=written.text("document_id"),
        document_version=written.whole("document_version"),
        title=written.text("title"),
        section=written.text("section"),
        page=written.whole("page"),
        uri=written.text("uri"),
        score=None if written.is_none("score") else written.number("score"),
        raw_score=written.number("raw_score"),
        score_label=written.text("score_label"),
        hit_reason=written.text("hit_reason"),
        risk=written.texts("risk"),
    )
    written.end()
    return source


def _citation(written: Members) -> CitedSource:
    citation = CitedSource(
        n=written.whole("n", least=1),
        chunk_id=written.text("chunk_id"),
        document_id=written.text("document_id"),
        document_version=written.whole("document_version"),
        title=written.text("title"),
        section=written.text("section"),
        page=written.whole("page"),
        uri=written.text("uri"),
        quote=written.text("quote"),
        supported=written.flag("supported"),
    )
    written.end()
    return citation


def _usage(written: Members) -> Usage:
    usage = Usage(
        written.whole("input_tokens"), written.whole("output_tokens"), estimated=written.flag("estimated")
    )
    written.end()
    return usage


def _searched(written: Members) -> Searched:
    searched = Searched(
        written.text("knowledge_base"), written.whole("passages"), missing=written.texts("missing")
    )
    written.end()
    return searched


def _check(kept: KeptAnswer) -> None:
    """A refusal says nothing, an answer something, and nothing is shown of a document that isn't among those
    whose permissions are looked up before.
    """
    opening, ending = kept.opening, kept.ending
    if not _REASONS.issuperset(ending.reasons):
        raise Damaged
    if ending.reasons and (kept.text or ending.citations):
        raise Damaged
    if not ending.reasons and (not kept.text or ending.searched is not None):
        raise Damaged
    shown: tuple[Source | CitedSource, ...] = (*opening.sources, *ending.citations)
    if not {DocumentRef(one.document_id, one.document_version) for one in shown} <= opening.documents:
        raise Damaged
