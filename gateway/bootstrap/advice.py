"""Advice: what an operator is told about a part that doesn't answer, and what there is to do about it."""

from gateway.adapters.sql.postgres_errors import DatabaseFailure
from gateway.errors import DeadlineExceeded, GatewayError

_ADVICE = {
    "schema_not_migrated": "run qa-gateway migrate with the owner's account",
    "schema_unknown": "another version of this program has written it: run that one, or a newer one",
    "catalog_unavailable": "check GATEWAY_DATABASE_URL, the server and its firewall",
    "vector_store_unavailable": "check GATEWAY_MILVUS_URI and _TOKEN; migrate makes the collection",
    "object_store_unavailable": "check GATEWAY_OBJECT_STORE_URL, the bucket and AWS_* credentials",
    "storage_full": "make room on the disk of GATEWAY_DATA_DIR; GATEWAY_DATA_RESERVE_MB of it stay free",
    "quota_unavailable": "check GATEWAY_REDIS_URL; one that was restarted opens when all leases have run out",
    "quota_evicts": "set maxmemory-policy noeviction: a lease that is evicted lets too many calls run",
    "identity_unavailable": "check GATEWAY_OIDC_ISSUER: its discovery document and keys must be reachable",
    "embedder_unavailable": "check GATEWAY_EMBEDDING_BASE_URL and _API_KEY",
    "embedding_space_mismatch": "name the embedder that the release was built with: "
    "GATEWAY_PREVIOUS_EMBEDDING_* until qa-gateway reindex has built it anew",
    "not_calibrated": "questions get 503: qa-gateway eval --calibrate fits it, set GATEWAY_CALIBRATION",
    "reranker_unavailable": "check GATEWAY_RERANK_URL, _API and _API_KEY; without it the fused order stays",
    "reranker_not_calibrated": "answers don't use it: qa-gateway eval --calibrate fits it, then set "
    "GATEWAY_CALIBRATION and build a release",
    "embedder_not_installed": "install the extra that it names, or choose another GATEWAY_EMBEDDER",
    "embedders_named_twice": "unset one of the two",
    "vectorstore_not_installed": "pip install --require-hashes -r requirements/langchain.txt",
    "account_too_powerful": "give the runtime accounts of its own: "
    "qa-gateway migrate --runtime-account … --milvus-account …",
    "model_unavailable": "check GATEWAY_MODEL_BASE_URL and _API_KEY",
    "clock_skew": "synchronise the clocks of this machine and the database's",
    "not_shared": "a folder of one machine: several machines need an object store (GATEWAY_OBJECT_STORE_URL)",
    "journal_unavailable": "check GATEWAY_JOURNAL_URL, the bucket and AWS_* credentials",
    "journal_not_shared": "a folder of one machine: set GATEWAY_JOURNAL_URL to a store outside the backups",
    "journal_late": "check GATEWAY_JOURNAL_URL and that a serving process or a worker runs",
    "restore_unconfirmed": "qa-gateway restore --confirm opens it to questions",
    "original_missing": "import the document again; its passages are served as before until then",
    "original_damaged": "import the document again; its passages are served as before until then",
    "chunk_file_missing": "doctor --compare --repair cuts it again; else import the document again",
    "chunk_file_damaged": "doctor --compare --repair cuts it again; else import the document again",
    "vectors_missing": "doctor --compare --repair embeds them again; of another space: reindex",
    "rows_missing": "doctor --compare --repair writes them again",
    "rows_surplus": "doctor --compare --repair writes the revision again",
    "citations_broken": "doctor --compare --repair writes the revision again",
    "rows_orphaned": "reclaim removes them within a day, doctor --compare --repair at once",
    "data_dir_in_use": "embedded parts belong to the process that serves: stop it, then compare",
    "data_dir_open": "chmod 700: it may hold keys and documents",
}


def advice_for(code: str) -> str:
    """Empty where nothing general can be said."""
    return _ADVICE.get(code, "")


def told(error: GatewayError) -> str:
    """An error in one line. A database is quoted by the class of its error: its messages may hold rows."""
    if isinstance(error, DeadlineExceeded):
        return "it didn't answer in time"
    text, cause = error.detail or error.title, error.__cause__
    return f"{text} ({cause})" if isinstance(cause, DatabaseFailure) else text


def advised(error: GatewayError, code: str) -> str:
    """The same with what to do about ``code``."""
    advice = advice_for(code)
    return f"{told(error)}; {advice}" if advice else told(error)
