"""API keys: what a caller may hand on, what a key is worth, and which verifier a credential goes to."""

import hashlib
import hmac
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.access.apikey import LONGEST_TTL_S, ApiKey, ApiKeyGrant, granted
from gateway.access.principal import SCOPES, Principal
from gateway.adapters.identity.api_keys import ApiKeyVerifier, Pepper, Verifiers
from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.errors import (
    CatalogUnavailable,
    ConfigurationError,
    Forbidden,
    InvalidField,
    ScopeMissing,
    TokenExpired,
    TokenInvalid,
)

NOW = 1_800_000_000.0
PEPPER = Pepper(b"p" * 32)
ANN = Principal("acme", "ann", frozenset({"staff", "hr"}), frozenset({"ask", "operate"}), NOW + 3600)
KEY = Principal(
    "acme", "apikey:ci", frozenset({"staff"}), frozenset({"ask", "operate"}), NOW + 3600, owner="ann"
)


def grant(giver: Principal = ANN, **changes: object) -> ApiKeyGrant:
    asked = {"name": "ci", "groups": ["staff"], "scopes": ["ask"], "ttl_s": 60} | changes
    return granted(giver, now=NOW, **asked)  # type: ignore[arg-type]  # each test asks for what it names


# -- what may be handed on -------------------------------------------------------------------------


def test_a_key_has_what_was_asked_for_and_no_more() -> None:
    """Not all that its maker has."""
    assert grant() == ApiKeyGrant("ci", frozenset({"staff"}), frozenset({"ask"}), NOW + 60)
    assert grant(groups=[]).groups == frozenset()


@pytest.mark.parametrize("scopes", [["ingest"], ["ask", "release"], sorted(SCOPES)], ids=str)
def test_a_scope_that_the_maker_lacks_is_refused(scopes: list[str]) -> None:
    """By its name, rather than left out."""
    with pytest.raises(ScopeMissing) as refused:
        grant(scopes=scopes)
    assert all(scope in refused.value.detail for scope in set(scopes) - ANN.scopes)


@pytest.mark.parametrize("group", ["board", "Staff", "staff ", "group:staff", "", "staf\u0444"])
def test_a_group_that_the_maker_is_not_in_is_refused(group: str) -> None:
    """Compared byte for byte."""
    with pytest.raises(Forbidden):
        grant(groups=["staff", group])


def test_a_persons_key_may_outlive_his_token() -> None:
    """That is what it is for; without a time to live it has no end."""
    assert grant(ttl_s=LONGEST_TTL_S).expires_at == NOW + LONGEST_TTL_S
    assert grant(ttl_s=None).expires_at is None


def test_a_key_makes_no_key() -> None:
    """A stolen one must not buy itself time, nor live on in another."""
    with pytest.raises(Forbidden):
        grant(KEY, ttl_s=1)


BAD: dict[str, dict[str, Any]] = {
    "no name": {"name": ""},
    "a padded name": {"name": " ci"},
    "a name with NUL": {"name": "c\0i"},
    "a name with a line break": {"name": "ci\n"},
    "half a surrogate pair": {"name": "\ud800"},
    "a name that writes backwards": {"name": "ci\u202e"},
    "a long name": {"name": "n" * 201},
    "no scope": {"scopes": []},
    "an unknown scope": {"scopes": ["ask", "admin"]},
    "a scope in capitals": {"scopes": ["ASK"]},
    "201 groups": {"groups": ["staff"] * 201},
    "no time": {"ttl_s": 0},
    "a time in the past": {"ttl_s": -1},
    "a second too long": {"ttl_s": LONGEST_TTL_S + 1},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_what_no_key_can_be_is_a_bad_field(changes: dict[str, Any]) -> None:
    """Said as such, before any question of rights."""
    with pytest.raises(InvalidField):
        grant(**changes)


# -- what a key is worth ---------------------------------------------------------------------------


async def kept(catalog: MemoryCatalog, **changes: object) -> tuple[ApiKey, str]:
    key, credential = PEPPER.issue(ANN, grant(), NOW)
    key = replace(key, **changes)  # type: ignore[arg-type]  # each test names fields that there are
    await catalog.add_api_key(key)
    return key, credential


def verifier(catalog: MemoryCatalog, now: float = NOW) -> ApiKeyVerifier:
    return ApiKeyVerifier(catalog, PEPPER, lambda: now)


async def test_a_key_acts_as_itself() -> None:
    """Under its own subject, in its maker's tenant, with the rights it was given."""
    catalog = MemoryCatalog()
    key, credential = await kept(catalog)
    assert await verifier(catalog).verify(credential) == Principal(
        "acme", "apikey:ci", frozenset({"staff"}), frozenset({"ask"}), NOW + 60, "ann", key.key_id
    )


async def test_a_key_without_an_end_is_good_for_long() -> None:
    """Its principal still has one, beyond any request."""
    catalog = MemoryCatalog()
    _, credential = await kept(catalog, expires_at=None)
    assert (await verifier(catalog, NOW * 2).verify(credential)).expires_at > NOW * 100


def test_the_secret_is_kept_nowhere() -> None:
    """Only its keyed hash; two keys of one request have nothing in common."""
    key, credential = PEPPER.issue(ANN, grant(), NOW)
    prefix, key_id, secret = credential.split("_", 2)
    assert (prefix, key_id, len(secret)) == ("qak", key.key_id, 43)
    assert secret not in repr(key)
    assert key.digest == hmac.new(b"p" * 32, secret.encode(), hashlib.sha256).hexdigest()
    other, another = PEPPER.issue(ANN, grant(), NOW)
    assert len({key.key_id, other.key_id, credential, another, key.digest, other.digest}) == 6


async def test_every_changed_character_is_another_key() -> None:
    """Also those after the last whole byte; nothing is told about which one it was."""
    catalog = MemoryCatalog()
    _, credential = await kept(catalog)
    for place, character in enumerate(credential):
        for other in "aB0_-":
            if other != character:
                with pytest.raises(TokenInvalid) as refused:
                    await verifier(catalog).verify(credential[:place] + other + credential[place + 1 :])
                assert refused.value.detail == ""


FORMS = ("", "qak_", "qak__", "qak_{id}", "qak_{id}_", "qak_{id}_{secret}x", "QAK_{id}_{secret}", "{secret}")
MORE = (
    "qak_{id}_{secret}\n",
    " qak_{id}_{secret}",
    "qak_{id}{secret}",
    "qak_{id}_{secret}=",
    "qak_{id}.{secret}",
)


@pytest.mark.parametrize("form", [*FORMS, *MORE])
async def test_another_form_is_no_key(form: str) -> None:
    """Whatever it is made of."""
    catalog = MemoryCatalog()
    _, credential = await kept(catalog)
    _, key_id, secret = credential.split("_", 2)
    with pytest.raises(TokenInvalid):
        await verifier(catalog).verify(form.replace("{id}", key_id).replace("{secret}", secret))


async def test_a_secret_opens_its_own_key_only() -> None:
    """Ids and secrets can't be mixed."""
    catalog = MemoryCatalog()
    first, second = (await kept(catalog))[1], (await kept(catalog))[1]
    with pytest.raises(TokenInvalid):
        await verifier(catalog).verify(first[:28] + second[28:])


async def test_a_revoked_key_is_dead_at_once() -> None:
    """As unknown as any other, expired or not."""
    catalog = MemoryCatalog()
    key, credential = await kept(catalog)
    await catalog.revoke_api_key("acme", key.key_id)
    for now in (NOW, NOW + 3600):
        with pytest.raises(TokenInvalid):
            await verifier(catalog, now).verify(credential)


async def test_an_expired_key_says_so_to_its_holder_alone() -> None:
    """From its last moment on, without any leeway: both clocks are ours."""
    catalog = MemoryCatalog()
    key, credential = await kept(catalog)
    assert key.expires_at is not None
    assert await verifier(catalog, key.expires_at - 0.001).verify(credential)
    with pytest.raises(TokenExpired):
        await verifier(catalog, key.expires_at).verify(credential)
    with pytest.raises(TokenInvalid):
        await verifier(catalog, key.expires_at).verify(credential[:-43] + "A" * 43)


async def test_another_pepper_knows_no_key() -> None:
    """A catalog that was carried off lets nobody in."""
    catalog = MemoryCatalog()
    _, credential = await kept(catalog)
    with pytest.raises(TokenInvalid):
        await ApiKeyVerifier(catalog, Pepper(b"q" * 32), lambda: NOW).verify(credential)


async def test_without_the_catalog_nobody_can_tell() -> None:
    """503, neither in nor out."""

    class Broken(MemoryCatalog):
        async def api_key(self, key_id: str) -> ApiKey | None:
            raise CatalogUnavailable()

    catalog = Broken()
    _, credential = await kept(catalog)
    with pytest.raises(CatalogUnavailable):
        await verifier(catalog).verify(credential)


# -- the pepper ------------------------------------------------------------------------------------


def test_a_pepper_is_made_once_for_its_owners_eyes(tmp_path: Path) -> None:
    """The second start reads what the first one wrote; nothing shows it."""
    first, second = Pepper.load(tmp_path), Pepper.load(tmp_path)
    assert first.digest("x") == second.digest("x")
    (file,) = (tmp_path / "keys").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_bytes()) == 64
    assert file.read_text() not in repr(first)


def test_two_servers_have_two_peppers(tmp_path: Path) -> None:
    """Nothing is built in."""
    peppers = [Pepper.load(tmp_path / name) for name in ("a", "b")]
    assert len({pepper.digest("x") for pepper in peppers}) == 2


@pytest.mark.parametrize("secret", [b"", b"pepper", b"p" * 31])
def test_a_short_pepper_is_refused(secret: bytes) -> None:
    """At the start, not when somebody has guessed it."""
    with pytest.raises(ConfigurationError) as refused:
        Pepper(secret)
    assert refused.value.reason == "api_key_pepper_weak"


def test_a_pepper_file_that_is_unusable_stops_the_start(tmp_path: Path) -> None:
    """A folder in its place can't be read, an emptied one is too short."""
    (tmp_path / "keys" / "api_key_pepper").mkdir(parents=True)
    with pytest.raises(ConfigurationError) as refused:
        Pepper.load(tmp_path)
    assert refused.value.reason == "key_unusable"
    (tmp_path / "other" / "keys").mkdir(parents=True)
    (tmp_path / "other" / "keys" / "api_key_pepper").touch()
    with pytest.raises(ConfigurationError):
        Pepper.load(tmp_path / "other")


# -- which verifier --------------------------------------------------------------------------------


class Recorded:
    """Lets everybody in and remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    async def verify(self, bearer: str) -> Principal:
        self.given.append(bearer)
        return ANN


TOKENS = ("eyJh.eyJi.c2ln", "qak", "Qak_x", "x.qak_y", "")
KEYS = ("qak_", "qak_a_b", "qak_eyJh.eyJi.c2ln")


async def test_a_credential_is_tried_as_what_it_looks_like_only() -> None:
    """A key never as a token, a token never as a key."""
    tokens, keys = Recorded(), Recorded()
    verifiers = Verifiers(tokens, keys)
    for bearer in (*TOKENS, *KEYS):
        await verifiers.verify(bearer)
    assert (tuple(tokens.given), tuple(keys.given)) == (TOKENS, KEYS)


async def test_without_keys_a_key_is_no_identity() -> None:
    """Nor is it then tried as a token."""
    tokens = Recorded()
    with pytest.raises(TokenInvalid):
        await Verifiers(tokens, None).verify("qak_a_b")
    assert tokens.given == []
