"""The seal of kept answers: what it hides, what it notices, and which secrets it takes."""

import base64
import os

import pytest

from gateway.adapters.aes import AesSeal
from gateway.answer.cache import Damaged
from gateway.errors import ConfigurationError

SECRET = bytes(range(32))
SEAL = AesSeal(SECRET)
DIGEST = "ab" * 32
CONTENT = b"The limit is 42 megabytes."


def test_what_was_closed_opens_under_its_own_digest_only() -> None:
    """And with its own secret only."""
    sealed = SEAL.close(DIGEST, CONTENT)
    assert AesSeal(SECRET).open(DIGEST, sealed) == CONTENT
    with pytest.raises(Damaged):
        SEAL.open("cd" * 32, sealed)
    with pytest.raises(Damaged):
        AesSeal(bytes(32)).open(DIGEST, sealed)


def test_every_bit_of_it_counts() -> None:
    """One that is changed, cut off or added is noticed."""
    sealed = SEAL.close(DIGEST, CONTENT)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(Damaged):
            SEAL.open(DIGEST, bytes(changed))
        with pytest.raises(Damaged):
            SEAL.open(DIGEST, sealed[:place])
    with pytest.raises(Damaged):
        SEAL.open(DIGEST, sealed + b"\0")


def test_the_same_is_never_closed_alike() -> None:
    """Nobody sees that two entries say the same; and nothing of it can be read."""
    sealed = {SEAL.close(DIGEST, CONTENT) for _ in range(100)}
    assert len(sealed) == 100
    assert not any(b"limit" in each for each in sealed)


def test_a_name_says_nothing_without_the_secret() -> None:
    """It is the same each time, another for another secret, and never what it stands for."""
    assert SEAL.name(DIGEST) == AesSeal(SECRET).name(DIGEST)
    assert len({SEAL.name(DIGEST), AesSeal(bytes(32)).name(DIGEST), SEAL.name("d1"), DIGEST}) == 4


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_comes_in_base64(encode: object) -> None:
    """In either alphabet, as ``openssl rand -base64 32`` and others print it."""
    secret = b"\xfb\xff" + os.urandom(30)
    given = encode(secret).decode()  # type: ignore[operator]  # one of the two above
    assert AesSeal.from_base64(f"{given}\n").open(DIGEST, AesSeal(secret).close(DIGEST, CONTENT)) == CONTENT


@pytest.mark.parametrize(
    "given",
    ["", "swordfish", *(base64.b64encode(bytes(size)).decode() for size in (31, 33)), "ä" * 44, "=" * 44],
)
def test_any_other_secret_is_refused_and_not_quoted(given: str) -> None:
    """Whoever reads the log of the start doesn't learn it."""
    with pytest.raises(ConfigurationError, match="GATEWAY_ANSWER_CACHE_KEY is not 32 bytes") as refused:
        AesSeal.from_base64(given)
    assert refused.value.reason == "answer_cache_key"
    assert not given or given not in str(refused.value)
    assert refused.value.__cause__ is None


def test_no_secret_shows() -> None:
    """Neither in its repr nor in the names of what it holds."""
    shown = repr(SEAL) + str(SEAL)
    assert not any(form in shown for form in (SECRET.hex(), base64.b64encode(SECRET).decode(), repr(SECRET)))
