"""Which contract suites there are, and what stands behind each column of them."""

from collections.abc import Mapping
from dataclasses import dataclass

IMPLEMENTATIONS = ("memory", "embedded", "real")


@dataclass(frozen=True)
class Suite:
    """One suite: the port it holds its implementations to, and which ones they are."""

    port: str
    memory: str
    embedded: str
    real: str


def _catalog(port: str) -> Suite:
    return Suite(port, "MemoryCatalog", "SQLite", "PostgreSQL")


#: by the name of the test module
SUITES: Mapping[str, Suite] = {
    "test_answer_model": Suite("AnswerModel", "ScriptedModel", "ExtractiveModel", "chat endpoint"),
    "test_answer_store": Suite("AnswerStore", "in process", "in process", "Redis"),
    "test_catalog_access": _catalog("AccessCatalog, Recheck"),
    "test_catalog_acts": _catalog("acts of TaskStore, ReleaseStore, RevocationCatalog"),
    "test_catalog_api_keys": _catalog("ApiKeyStore"),
    "test_catalog_askers": _catalog("TaskStore, ReleaseStore: tasks of the revoked"),
    "test_catalog_audit": _catalog("AuditLog"),
    "test_catalog_configs": _catalog("ReleaseStore: retrieval configs"),
    "test_catalog_diffs": _catalog("ReleaseStore: differences, vector places"),
    "test_catalog_governance": _catalog("Governance, MoveStore"),
    "test_catalog_journal": _catalog("JournalOutbox"),
    "test_catalog_lexicon": _catalog("Lexicon"),
    "test_catalog_models": _catalog("ReleaseStore: model adapters"),
    "test_catalog_orders": _catalog("OrderBoard"),
    "test_catalog_remains": _catalog("RemainsStore, ReferenceStore, ReclaimStore"),
    "test_catalog_releases": _catalog("ReleaseStore, ReleaseCatalog"),
    "test_catalog_revocations": _catalog("RevocationCatalog"),
    "test_catalog_standing": _catalog("VersionStore: what stands"),
    "test_catalog_tasks": _catalog("TaskStore"),
    "test_catalog_traces": _catalog("TraceStore, ReleaseContents, RemainsStore: quotes"),
    "test_catalog_talks": _catalog("TurnStore"),
    "test_catalog_turns": _catalog("TaskStore: turns, rests, lists"),
    "test_catalog_versions": _catalog("VersionStore"),
    "test_embedder": Suite("Embedder", "FixedEmbedder", "bundled model", "embeddings endpoint"),
    "test_identity": Suite("IdentityVerifier", "a table of tokens", "local key", "OIDC issuer"),
    "test_moderator": Suite("Moderator", "WordModerator", "file of phrases", "moderations endpoint"),
    "test_objects": Suite("ObjectStore", "MemoryObjects", "folder", "S3"),
    "test_parser": Suite("DocumentParser", "in process", "child process", "the same child"),
    "test_quota": Suite("Quota", "in process", "in process", "Redis"),
    "test_reranker": Suite("Reranker", "WordReranker", "linear", "rerank endpoint"),
    "test_vectors": Suite(
        "ChunkReader, ChunkWriter, DenseReader", "MemoryVectors", "Milvus Lite", "Milvus server"
    ),
}
