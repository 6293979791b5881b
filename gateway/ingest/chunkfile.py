"""Chunk files: what a document version was cut into, as the object store keeps it (JSON)."""

import orjson

from gateway.ingest.document import BuiltDocument, Passage


def dump(built: BuiltDocument) -> bytes:
    return orjson.dumps(built)


def load(content: bytes) -> BuiltDocument:
    raw = orjson.loads(content)
    passages = tuple(Passage(p["section"], p["content"], p["page"]) for p in raw["passages"])
    return BuiltDocument(
        raw["title"],
        raw["parser_version"],
        raw["splitter_version"],
        passages,
        raw.get("valid_from"),  # files written before documents could state their dates have none
        raw.get("valid_until"),
        tuple(raw.get("risk", ())),
    )
