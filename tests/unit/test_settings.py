"""Settings: where they come from, what they refuse, and that no secret is ever printed."""

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from gateway.settings import Settings

SECRETS_DIR = "GATEWAY_SECRETS_DIR"

SECRETS = sorted(name for name, field in Settings.model_fields.items() if "Secret" in str(field.annotation))
VALUE = "sw0rdfish"


@pytest.fixture
def secret_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of secrets, as an orchestrator mounts one."""
    for name in SECRETS:
        (tmp_path / f"GATEWAY_{name}".upper()).write_text(f"{VALUE}\n")
    monkeypatch.setenv(SECRETS_DIR, str(tmp_path))
    return tmp_path


def test_secrets_may_come_from_files(secret_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file a setting; a variable of that name wins."""
    assert {getattr(Settings(), name).get_secret_value() for name in SECRETS} == {VALUE}
    monkeypatch.setenv("GATEWAY_REDIS_URL", "redis://elsewhere")
    assert Settings().redis_url == SecretStr("redis://elsewhere")


def test_what_can_hold_a_password_is_never_printed(secret_files: Path) -> None:
    """Neither by a repr nor as JSON; every setting that carries one is of a kind that masks itself."""
    assert {"database_url", "redis_url", "milvus_token", "model_api_key", "api_key_pepper"} <= set(SECRETS)
    assert VALUE not in repr(Settings())
    assert VALUE not in Settings().model_dump_json()


def test_a_folder_of_secrets_that_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on without them would end in a stranger error."""
    monkeypatch.setenv(SECRETS_DIR, str(tmp_path / "missing"))
    with pytest.raises(ValidationError, match="secrets_dir"):
        Settings()


def test_production_waits_less_for_retrieval() -> None:
    """200 ms where real users wait, unless told otherwise."""
    assert Settings().retrieval_cap_ms == 1000
    assert Settings(env="production").retrieval_cap_ms == 200
    assert Settings(env="production", retrieval_cap_ms=300).retrieval_cap_ms == 300


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", 0),
        ("workers", 65),
        ("database_connections", 1),
        ("embedding_dimension", 7),
        ("embedding_max_sensitivity", 4),
        ("start_wait_s", -1),
        ("quota_concurrency", 0),
        ("env", "staging"),
    ],
)
def test_a_value_out_of_range_is_refused(name: str, value: object) -> None:
    """At the start, with the setting's name."""
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})  # type: ignore[arg-type]  # pydantic is to check it


def test_settings_do_not_change() -> None:
    """Read once, then frozen."""
    with pytest.raises(ValidationError):
        Settings().workers = 2
