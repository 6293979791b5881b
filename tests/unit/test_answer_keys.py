"""The key of an answer names everything that shaped it; what isn't in it can't shape one."""

import dataclasses
import typing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.answer.cache import AnswerKey
from gateway.answer.prompt import PROMPT_VERSION
from gateway.answer.question import Question
from gateway.answer.reuse.keys import AnswerKeys
from gateway.bootstrap.answers import POLICY, SHAPING, answer_keys
from gateway.context import Deadline, RequestContext
from gateway.release.model import EmbeddingSpace, GateFit, RetrievalConfig, RetrievalRelease
from gateway.settings import Settings

ROOT = Path(__file__).parents[2]

#: settings that shape an answer and are told by another part of the key, or by what they lead to
_ELSEWHERE = {
    "max_output_tokens": "the most that this very answer may have",
    "moderation_phrases": "the file's text, in output_policy_version",
    "calibration": "the numbers of the release's config, in retrieval_config_version",
    "conversation_turns": "the follow-up as it is told, in conversation_digest",
    "conversation_hours": "the same",
    "rewrite": "the same, whoever told it",
    "rewrite_cap_ms": "the same: beyond it rules tell it",
}
#: settings that can't shape an answer that is kept, by why
_OUTSIDE = {
    "where and as what the process runs": (
        "env host port data_dir data_reserve_mb secrets_dir log_level workers serve_imports start_wait_s"
        " process_name"
    ),
    "where things lie; a catalog has its incarnation, and a release its revision": (
        "database_url database_connections milvus_uri milvus_token redis_url object_store_url journal_url"
    ),
    "credentials: they say who asks and not what": (
        "embedding_api_key previous_embedding_api_key rerank_api_key model_api_key fallback_model_api_key"
        " moderation_api_key api_key_pepper"
    ),
    "who the caller is, which the scope tells": (
        "token_audience token_leeway_s oidc_issuer oidc_audience oidc_jwks_url oidc_tenant_claim"
        " oidc_groups_claim oidc_scope_claim"
    ),
    "time and places: without them there is no answer, or one of a skipped stage, which isn't kept": (
        "embed_cap_ms retrieval_cap_ms rerank_cap_ms connect_cap_ms first_token_cap_ms idle_cap_ms"
        " total_cap_ms catalog_cap_ms moderation_cap_ms embedding_concurrency embedding_wait_ms"
        " retrieval_concurrency retrieval_wait_ms rerank_concurrency rerank_wait_ms generation_concurrency"
        " generation_wait_ms sse_sessions offline_embedding_concurrency requests_per_minute"
        " quota_concurrency quota_requests_per_minute quota_tokens_per_minute model_concurrency"
        " model_requests_per_minute model_tokens_per_minute quota_cap_ms quota_lease_s max_connections"
        " head_timeout_s body_timeout_s search_batch"
    ),
    "a call of the first choice is repeated as it was, and answers of the second aren't kept": (
        "model_retries breaker_failures breaker_open_s"
    ),
    "when rights are looked at, which happens on every read": "revocation_poll_ms revocation_bound_ms",
    "what is taken in and how it is sent": (
        "question_max_chars body_max_bytes upload_max_bytes document_max_bytes session_buffer_bytes"
        " head_max_bytes heartbeat_s send_timeout_s revoked_send_ms coalesce_ms coalesce_bytes drain_s"
    ),
    "searches without an answer": "top_k tool_max_sensitivity",
    "reuse itself": (
        "answer_cache_ttl_s answer_cache_refusal_ttl_s answer_cache_bytes answer_cache_cap_ms"
        " answer_cache_key answer_sharing"
    ),
    "traces": "trace_days",
    "imports: what they bring is another revision": (
        "embedding_batch task_lease_s task_deadline_s task_wait_s task_attempts task_retry_s"
        " task_retry_max_s task_streams tenant_task_streams task_days idempotency_days parse_cap_s"
        " parse_memory_mb rollback_window_s rollback_releases orphan_grace_s reclaim_poll_s import_types"
    ),
}

_SPACE = EmbeddingSpace("space-1", "model", 8)
_CONFIG = RetrievalConfig("config/1", 1.0, 1.0, 0.5)


def _context(
    *, tenant: str = "acme", kb: str = "kb-1", scope: dict[str, Any] | None = None, **release: Any
) -> RequestContext:
    """``scope`` and ``release`` say what is another one than usual."""
    permission: dict[str, Any] = {
        "tenant": tenant,
        "kb_id": kb,
        "knowledge_base": "handbook",
        "acl_revision": 1,
        "revocation_epoch": 1,
        "incarnation": "first",
        "principals": frozenset({"user:ann"}),
        "permitted_classes": frozenset({1, 2}),
    }
    bound: dict[str, Any] = {
        "release_id": "r",
        "tenant": tenant,
        "kb_id": kb,
        "knowledge_base": "handbook",
        "kb_revision": "rev-1",
        "sequence": 1,
        "space": _SPACE,
        "collection": "chunks",
        "config": _CONFIG,
        "model": "adapter",
    }
    return RequestContext(
        "req",
        "trace",
        Principal(tenant, "ann", frozenset(), frozenset({"ask"}), 1e12),
        AccessScope(**{**permission, **(scope or {})}),
        RetrievalRelease(**{**bound, **release}),
        Deadline.after(1000),
    )


_KEYS = AnswerKeys("policy", "gateway", reranker="words/1")
_ASKED = Question("How many?")


def _key(
    context: RequestContext | None = None,
    question: Question = _ASKED,
    *,
    keys: AnswerKeys = _KEYS,
    model: str = "m",
    tokens: int = 100,
) -> AnswerKey:
    return keys.of(context or _context(), question, model=model, max_output_tokens=tokens)


_WORDS = replace(_CONFIG, gates=(GateFit((("coverage", 1.0),), 0.5, reranker="words/1"),))
_OTHER_SPACE = EmbeddingSpace("space-2", "model", 8)


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        (_key(_context(tenant="globex")), {"tenant", "scope_digest"}),
        (_key(_context(kb="kb-2")), {"kb_id", "scope_digest"}),
        (_key(_context(kb_revision="rev-2")), {"kb_revision"}),
        (_key(_context(space=_OTHER_SPACE)), {"embedding_space_id"}),
        (_key(_context(scope={"permitted_classes": frozenset({1})})), {"scope_digest"}),
        (_key(_context(scope={"acl_revision": 2})), {"acl_revision"}),
        (_key(question=Question("How many users?")), {"question_hash"}),
        (_key(question=Question("How many?", own="And?")), {"conversation_digest"}),
        (_key(_context(config=replace(_CONFIG, version="config/2"))), {"retrieval_config_version"}),
        (_key(_context(config=replace(_CONFIG, bias=0.6))), {"retrieval_config_version"}),
        (_key(_context(config=_WORDS)), {"retrieval_config_version", "reranker_version"}),
        (_key(_context(model="other")), {"model"}),
        (_key(model="other"), {"model"}),
        (_key(question=Question("How many?", language="zh")), {"language"}),
        (_key(keys=replace(_KEYS, output_policy="other")), {"output_policy_version"}),
        (_key(tokens=101), {"max_output_tokens"}),
        (_key(_context(scope={"incarnation": "restored"})), {"incarnation", "scope_digest"}),
        (_key(keys=replace(_KEYS, gateway_digest="other")), {"gateway_digest"}),
    ],
)
def test_whatever_shapes_an_answer_is_a_part_of_its_key(changed: AnswerKey, parts: set[str]) -> None:
    """Each by itself, and it alone."""
    usual = _key()
    differing = {f.name for f in fields(AnswerKey) if getattr(usual, f.name) != getattr(changed, f.name)}
    assert differing == parts
    assert usual.digest != changed.digest


@pytest.mark.parametrize(
    "same",
    [
        _key(_context(scope={"principals": frozenset({"user:bob"})})),
        _key(_context(scope={"revocation_epoch": 2})),
        _key(_context(sequence=2, release_id="other")),
        _key(question=Question("How many?", conversation_id="talk", language="en")),
    ],
)
def test_who_asks_and_when_is_no_part_of_it(same: AnswerKey) -> None:
    """Persons with the same permission share; revocations are looked up on every read."""
    assert same == _key()


def test_each_part_alone_makes_another_digest() -> None:
    """Also the prompt's version, which is a constant of the code."""
    usual = _key()
    assert usual.prompt_version == PROMPT_VERSION
    for part in fields(AnswerKey):
        value = getattr(usual, part.name)
        changed: dict[str, Any] = {part.name: value + 1 if isinstance(value, int) else value + "!"}
        assert replace(usual, **changed).digest != usual.digest, part.name


def test_parts_that_run_into_each_other_stay_apart() -> None:
    """``a`` + ``bc`` isn't ``ab`` + ``c``, whatever stands in a name."""
    one, other = replace(_key(), tenant='a","b', kb_id="c"), replace(_key(), tenant="a", kb_id='b","c')
    assert one.digest != other.digest


def test_the_page_about_the_cache_names_every_part() -> None:
    """And what the key has is what it says."""
    page = (ROOT / "docs" / "cache.md").read_text(encoding="utf-8")
    missing = [part.name for part in fields(AnswerKey) if f"`{part.name}`" not in page]
    assert missing == []


def test_every_setting_is_in_the_key_or_can_not_shape_an_answer() -> None:
    """A new setting has to be put into one of the lists: SHAPING, POLICY, or with its reason in this test."""
    outside = [name for names in _OUTSIDE.values() for name in names.split()]
    listed = [*SHAPING, *POLICY, *_ELSEWHERE, *outside]
    assert sorted(listed) == sorted(Settings.model_fields)


def test_no_secret_is_hashed_into_a_key() -> None:
    """A short one could be found again by trying."""
    for name in (*SHAPING, *POLICY):
        annotation = Settings.model_fields[name].annotation
        assert SecretStr not in {annotation, *typing.get_args(annotation)}, name


@pytest.mark.parametrize("name", [*SHAPING, *POLICY])
def test_each_setting_that_shapes_answers_makes_other_keys(name: str) -> None:
    """And it alone."""
    usual = Settings()
    other = usual.model_copy(update={name: f"not {getattr(usual, name)}"})
    one, two = answer_keys(usual, None), answer_keys(other, None)
    changed = {f.name for f in dataclasses.fields(AnswerKeys) if getattr(one, f.name) != getattr(two, f.name)}
    assert changed == {"output_policy" if name in POLICY else "gateway_digest"}


def test_the_text_of_the_phrases_counts_and_not_its_place(tmp_path: Path) -> None:
    """Two processes may have the same file elsewhere."""
    paths = [tmp_path / "one", tmp_path / "two"]
    settings = [Settings(moderation="segmented", moderation_phrases=path) for path in paths]
    for path in paths:
        path.write_text("rude: heck\n")
    first = answer_keys(settings[0], None)
    assert answer_keys(settings[1], None) == first
    paths[0].write_text("rude: darn\n")
    assert answer_keys(settings[0], None) != first
