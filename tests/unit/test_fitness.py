"""Fitness: which settings no process may start with, and how that is said."""

import re

import pytest

from gateway.bootstrap.fitness import refuse_other_space, refuse_powerful, refuse_unfit, some_of
from gateway.errors import ConfigurationError
from gateway.settings import Settings

FIT = {
    "env": "production",
    "database_url": "postgresql://h/d",
    "milvus_uri": "http://h:19530",
    "redis_url": "redis://h",
    "oidc_issuer": "https://issuer.example",
    "oidc_audience": "qa-gateway",
}


def refusal_of(**changes: object) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as refused:
        refuse_unfit(Settings.model_validate({**FIT, **changes}))
    return refused.value


@pytest.mark.parametrize(
    "changes",
    [{}, {"workers": 4}, {"previous_embedding_name": "bundled"}, {"env": "development", "oidc_issuer": None}],
)
def test_what_is_complete_may_start(changes: dict[str, object]) -> None:
    """Production with every server, with several processes, and development with some of them."""
    refuse_unfit(Settings.model_validate({**FIT, **changes}))


@pytest.mark.parametrize("name", ["database_url", "milvus_uri", "redis_url", "oidc_issuer"])
def test_production_names_the_setting_of_each_embedded_part(name: str) -> None:
    """One that is missing is enough, and only that one is named."""
    error = refusal_of(**{name: None})
    assert error.reason == "production_needs_servers"
    assert f"GATEWAY_{name.upper()}" in error.detail
    assert error.detail.count("GATEWAY_") == 1


@pytest.mark.parametrize("name", ["database_url", "milvus_uri", "redis_url"])
def test_several_processes_need_what_they_share(name: str) -> None:
    """In development too; the identity needn't be shared."""
    error = refusal_of(env="development", oidc_issuer=None, workers=2, **{name: None})
    assert (error.reason, error.detail.count("GATEWAY_")) == ("workers_need_servers", 1)
    assert f"GATEWAY_{name.upper()} is not set" in error.detail


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ({"revocation_bound_ms": 499}, ["GATEWAY_REVOCATION_BOUND_MS (499 ms)"]),
        ({"revocation_poll_ms": 501, "revocation_bound_ms": 60_000}, ["another process (1000 ms)"]),
        (
            {"revocation_poll_ms": 501, "revocation_bound_ms": 1001},
            ["GATEWAY_REVOCATION_BOUND_MS (1001 ms)", "another process (1000 ms)"],
        ),
    ],
)
def test_one_poll_may_be_missed(given: dict[str, object], waits: list[str]) -> None:
    """Two fit into every wait for one."""
    error = refusal_of(**given)
    assert error.reason == "polls_too_seldom"
    assert error.detail.count("more than half") == len(waits)
    for wait in waits:
        assert wait in error.detail


@pytest.mark.parametrize(
    "given",
    [
        {"revocation_bound_ms": 500},
        {"revocation_poll_ms": 500},
        {"env": "development", "database_url": None, "revocation_poll_ms": 1000},
    ],
)
def test_half_of_a_wait_is_often_enough(given: dict[str, object]) -> None:
    """Without other processes nobody waits for them."""
    refuse_unfit(Settings.model_validate({**FIT, **given}))


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"oidc_audience": None}, "OIDC_AUDIENCE"),
        ({"embedding_base_url": "http://e", "embedding_dimension": 8}, "EMBEDDING_NAME"),
        ({"embedding_base_url": "http://e", "embedding_name": "m"}, "EMBEDDING_DIMENSION"),
        ({"previous_embedding_name": "m"}, "PREVIOUS_EMBEDDING_BASE_URL"),
        (
            {"previous_embedding_base_url": "http://e", "previous_embedding_dimension": 8},
            "PREVIOUS_EMBEDDING_NAME",
        ),
        (
            {"previous_embedding_base_url": "http://e", "previous_embedding_name": "m"},
            "PREVIOUS_EMBEDDING_DIMENSION",
        ),
        ({"model_base_url": "http://m", "fallback_model_base_url": "http://f"}, "FALLBACK_MODEL_NAME"),
        ({"fallback_model_base_url": "http://f", "fallback_model_name": "f"}, "MODEL_BASE_URL"),
        ({"rewrite": "model"}, "MODEL_BASE_URL"),
        ({"moderation": "segmented"}, "MODERATION_BASE_URL or GATEWAY_MODERATION_PHRASES"),
        ({"moderation": "buffered"}, "MODERATION_BASE_URL or GATEWAY_MODERATION_PHRASES"),
    ],
)
def test_settings_that_belong_together(given: dict[str, object], missing: str) -> None:
    """The missing half is named, in development as in production."""
    for env in ("development", "production"):
        error = refusal_of(env=env, **given)
        assert (error.reason, f"GATEWAY_{missing} is not set" in error.detail) == (
            "settings_incomplete",
            True,
        )


@pytest.mark.parametrize("rate", ["quota", "model"])
def test_one_call_fits_into_a_minutes_tokens(rate: str) -> None:
    """What it may use is reserved before it: with less no question would ever be answered."""
    name = f"{rate}_tokens_per_minute"
    error = refusal_of(**{name: 8191, "model_context_tokens": 8192})
    assert error.reason == "quota_too_small"
    assert f"GATEWAY_{name.upper()} (8191) is less than" in error.detail
    refuse_unfit(Settings.model_validate({**FIT, name: 8192, "model_context_tokens": 8192}))


def test_a_lease_outlasts_two_steps() -> None:
    """Without Redis there is none."""
    lent = {"quota_cap_ms": 500, "quota_lease_s": 1.0}
    error = refusal_of(**lent)
    assert (error.reason, "GATEWAY_QUOTA_CAP_MS" in error.detail) == ("quota_lease_too_short", True)
    refuse_unfit(Settings.model_validate({**FIT, **lent, "quota_cap_ms": 499}))
    refuse_unfit(Settings.model_validate({**lent, "env": "development"}))


@pytest.mark.parametrize(
    "given", [{"moderation_base_url": "http://m/v1"}, {"moderation_phrases": "phrases.txt"}]
)
def test_a_moderator_that_nobody_asks_is_refused(given: dict[str, object]) -> None:
    """Who named one believes that answers are checked."""
    (name,) = given
    error = refusal_of(**given)
    assert (error.reason, f"GATEWAY_{name.upper()} is set" in error.detail) == ("moderation_is_off", True)
    refuse_unfit(Settings.model_validate({**FIT, **given, "moderation": "segmented"}))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rollback_window_s": 622}, r"GATEWAY_ROLLBACK_WINDOW_S \(622 s\) .* and be kept \(622 s\)"),
        ({"rollback_window_s": 22, "answer_cache_ttl_s": 0}, r"may take and be kept \(22 s\)"),
        ({"rollback_window_s": 822, "answer_cache_refusal_ttl_s": 800}, r"and be kept \(822 s\)"),
        ({"orphan_grace_s": 3600}, r"GATEWAY_ORPHAN_GRACE_S \(3600 s\) .* a task's deadline \(3600 s\)"),
    ],
)
def test_what_somebody_may_still_need_is_not_reclaimed(given: dict[str, object], told: str) -> None:
    """A release until every answer that rests on it has ended, an object until every task has."""
    error = refusal_of(**given)
    assert error.reason == "reclaims_too_early"
    assert re.search(told, error.detail)


def test_a_second_more_than_needed_is_long_enough() -> None:
    """The least that both may be."""
    refuse_unfit(Settings.model_validate({**FIT, "rollback_window_s": 623, "orphan_grace_s": 3601}))
    unkept = {"rollback_window_s": 23, "answer_cache_ttl_s": 0}
    refuse_unfit(Settings.model_validate({**FIT, **unkept}))


def test_powers_and_spaces_are_refused_only_when_there_are_any() -> None:
    """The reason is the code, the rest names what is wrong."""
    refuse_powerful("an account", [])
    refuse_other_space(["a"], [])
    refuse_other_space(["a"], {"a"})
    with pytest.raises(ConfigurationError, match=r"an account may do more .*: drop it") as powerful:
        refuse_powerful("an account", ["drop it"])
    assert powerful.value.reason == "account_too_powerful"
    refuse_other_space(["a", "b"], {"a", "b"})
    with pytest.raises(ConfigurationError, match=r"in a: an active release holds b; .* holds c") as other:
        refuse_other_space(["a"], {"c", "a", "b"})
    assert other.value.reason == "embedding_space_mismatch"


def test_a_long_list_is_cut_and_counted() -> None:
    """Four are told whole; of more, the first three and the number of the others."""
    assert some_of(list("abcd")) == "a; b; c; d"
    assert some_of(list("abcde")) == "a; b; c; and 2 more"
