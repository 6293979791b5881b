"""An issuer that is down, slow, wrong or changing its keys: who is let in, and how often it is asked."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

from gateway.adapters.identity.documents import leads_down
from gateway.adapters.identity.oidc import OidcVerifier
from gateway.errors import ConfigurationError, IdentityUnavailable, TokenInvalid
from tests.harness.issuer import AUDIENCE, DISCOVERY, JSON, JWKS, Answer, Issuer, serving_issuer
from tests.harness.token_attacks import pss

PATIENCE_S = 30
FRESH_S, BOUND_S, UNKNOWN_S, RETRY_S = 300, 3600, 30, 5


class Clock:
    """Seconds, standing still until they are moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving_issuer() as one:
        yield one


@asynccontextmanager
async def verifying(
    issuer: Issuer, clock: Clock, *, jwks_url: str | None = None, fetch_s: float = 20.0
) -> AsyncIterator[OidcVerifier]:
    verifier = OidcVerifier(
        issuer.url, AUDIENCE, leeway_s=30, jwks_url=jwks_url, fetch_s=fetch_s, clock=clock
    )
    try:
        yield verifier
    finally:
        await verifier.aclose()


@pytest.fixture
async def verifier(issuer: Issuer, clock: Clock) -> AsyncIterator[OidcVerifier]:
    async with verifying(issuer, clock) as one:
        yield one


async def arrived(issuer: Issuer) -> None:
    """Returns when the issuer has got another request."""
    assert await anyio.to_thread.run_sync(issuer.arrived.acquire, True, PATIENCE_S)


async def settled() -> None:
    """Returns when what runs behind the requests has ended."""
    behind = asyncio.all_tasks() - {asyncio.current_task()}
    if behind:
        await asyncio.wait(behind)


# -- where the keys come from ----------------------------------------------------------------------


async def test_keys_are_found_through_the_discovery_document(issuer: Issuer, verifier: OidcVerifier) -> None:
    """Both kinds of keys verify; one look at each document does."""
    for key in (issuer.es256, issuer.rs256):
        assert (await verifier.verify(key.sign())).subject == "ann"
    assert issuer.requests == {DISCOVERY: 1, JWKS: 1}


async def test_a_known_address_of_the_keys_needs_no_discovery(issuer: Issuer, clock: Clock) -> None:
    """Nor has the issuer to serve one."""
    async with verifying(issuer, clock, jwks_url=issuer.jwks_url) as verifier:
        await verifier.verify(issuer.sign())
    assert issuer.requests == {JWKS: 1}


async def test_claims_are_read_from_the_names_of_the_settings(issuer: Issuer) -> None:
    """Scopes as a list of strings too; those of others are passed over."""
    verifier = OidcVerifier(
        issuer.url,
        AUDIENCE,
        leeway_s=30,
        tenant_claim="https://acme.example/org",
        groups_claim="roles",
        scope_claim="scp",
    )
    token = issuer.sign(
        tenant="globex",
        groups=["hr"],
        scope="operate",
        **{"https://acme.example/org": "acme", "roles": ["staff"], "scp": ["openid", "ask", "Ask"]},
    )
    try:
        principal = await verifier.verify(token)
        assert (principal.tenant, *principal.groups, *principal.scopes) == ("acme", "staff", "ask")
        with pytest.raises(TokenInvalid):
            await verifier.verify(issuer.sign())
    finally:
        await verifier.aclose()


async def test_a_token_with_no_scope_of_ours_gives_no_right(issuer: Issuer, verifier: OidcVerifier) -> None:
    """It is a known caller all the same."""
    for scope in ("openid profile", "", None):
        assert (await verifier.verify(issuer.sign(scope=scope))).scopes == frozenset()


ADDRESSES = {
    "http": "http://issuer.example",
    "ftp": "ftp://issuer.example",
    "a file": "file:///etc/passwd",
    "a name like the loopback's": "http://127.0.0.1.issuer.example",
    "a user": "https://user:secret@issuer.example",
    "no host": "https://",
    "no address": "issuer",
    "a fragment": "https://issuer.example/#keys",
}


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
async def test_keys_come_over_https_or_from_this_machine(address: str) -> None:
    """Whoever can change the keys on their way can be anybody; refused at the start."""
    for issuer, jwks_url in ((address, None), ("https://issuer.example", address)):
        with pytest.raises(ConfigurationError) as refused:
            OidcVerifier(issuer, AUDIENCE, leeway_s=30, jwks_url=jwks_url)
        assert refused.value.reason == "oidc_url_unusable"


async def test_tokens_for_nobody_in_particular_are_for_nobody() -> None:
    """Without an audience of our own the process doesn't start."""
    with pytest.raises(ConfigurationError) as refused:
        OidcVerifier("https://issuer.example", "", leeway_s=30)
    assert refused.value.reason == "oidc_audience_missing"


# -- which keys count ------------------------------------------------------------------------------


def weak_rsa() -> dict[str, object]:
    return {"kty": "RSA", "e": "AQAB", "n": base64.urlsafe_b64encode(b"\xff" * 128).decode().rstrip("=")}


USELESS: dict[str, dict[str, object]] = {
    "for encryption": {"use": "enc"},
    "for signing only": {"key_ops": ["sign"]},
    "key_ops no list": {"key_ops": "verify"},
    "for another algorithm": {"alg": "ES512"},
    "of a shared secret's algorithm": {"alg": "HS256"},
    "with its private half": {"d": "AQAB"},
    "of an unknown type": {"kty": "oct", "k": "c2VjcmV0"},
    "of a type that is no text": {"kty": 1},
    "of another curve": {"crv": "P-384"},
    "off the curve": {"x": "AQAB"},
    "without a part": {"y": None},
    "with a kid that is no text": {"kid": 7},
    "with an empty kid": {"kid": ""},
    "RSA, too short": weak_rsa(),
}


@pytest.mark.parametrize("changes", USELESS.values(), ids=USELESS)
async def test_a_key_that_is_not_for_verifying_verifies_nothing(
    issuer: Issuer, verifier: OidcVerifier, changes: dict[str, object]
) -> None:
    """Whatever it is good for; the good key beside it goes on serving."""
    issuer.publish({**issuer.es256.jwk, **changes}, issuer.rs256.jwk)
    with pytest.raises(TokenInvalid):
        await verifier.verify(issuer.es256.sign())
    assert (await verifier.verify(issuer.rs256.sign())).subject == "ann"


async def test_a_name_that_two_keys_share_is_nobodys(issuer: Issuer, verifier: OidcVerifier) -> None:
    """Trying both would let the weaker one decide; the key with a name of its own serves."""
    twin = {**issuer.rs256.jwk, "kid": issuer.es256.kid}
    issuer.publish(issuer.es256.jwk, twin, issuer.rs256.jwk)
    with pytest.raises(TokenInvalid):
        await verifier.verify(issuer.es256.sign())
    assert (await verifier.verify(issuer.rs256.sign())).subject == "ann"


async def test_a_key_for_pss_verifies_pss_alone(issuer: Issuer, verifier: OidcVerifier) -> None:
    """One key, one algorithm: that of its JWK."""
    issuer.publish({**issuer.rs256.jwk, "alg": "PS256"})
    assert (await verifier.verify(pss(issuer.rs256))).subject == "ann"
    with pytest.raises(TokenInvalid):
        await verifier.verify(issuer.rs256.sign())


async def test_a_key_without_an_algorithm_has_the_usual_one(issuer: Issuer, verifier: OidcVerifier) -> None:
    """RS256 and ES256; nothing else is derived from a token's header."""
    bare = [
        {n: v for n, v in key.jwk.items() if n not in {"alg", "use"}} for key in (issuer.es256, issuer.rs256)
    ]
    issuer.publish(*bare)
    for key in (issuer.es256, issuer.rs256):
        assert (await verifier.verify(key.sign())).subject == "ann"
    with pytest.raises(TokenInvalid):
        await verifier.verify(pss(issuer.rs256))


async def test_a_token_without_kid_needs_a_set_of_one_key(
    issuer: Issuer, clock: Clock, verifier: OidcVerifier
) -> None:
    """With two there would be a choice, and nobody tries one after the other."""
    key = issuer.es256
    nameless = key.token(key.header(kid=None), key.claims())
    with pytest.raises(TokenInvalid):
        await verifier.verify(nameless)
    issuer.publish(key.jwk)
    async with verifying(issuer, clock) as other:
        assert (await other.verify(nameless)).subject == "ann"
    issuer.publish({n: v for n, v in key.jwk.items() if n != "kid"})
    async with verifying(issuer, clock) as other:
        assert (await other.verify(nameless)).subject == "ann"
        with pytest.raises(TokenInvalid):
            await other.verify(key.sign())


# -- garbage ---------------------------------------------------------------------------------------


def keys(content: object) -> dict[str, Answer]:
    return {JWKS: Answer(json.dumps(content).encode())}


HTML = Answer(b"<html>Sign in</html>", headers={"Content-Type": "text/html"})
GARBAGE: dict[str, dict[str, Answer]] = {
    "HTML": {JWKS: HTML},
    "HTML that says it is JSON": {JWKS: Answer(HTML.body)},
    "nothing": {JWKS: Answer(b"")},
    "not UTF-8": {JWKS: Answer(b'{"keys": "\xff"}')},
    "a list": keys([]),
    "no keys": keys({}),
    "an empty set": keys({"keys": []}),
    "keys no list": keys({"keys": {"a": {}}}),
    "keys of nonsense": keys({"keys": [1, None, "x", [], {}, {"kty": "EC"}, {"kty": "RSA", "n": 1, "e": 2}]}),
    "1,000 keys": keys({"keys": [{}] * 1000}),
    "nested deeply": {JWKS: Answer(b"[" * 100_000)},
    "a name twice": {JWKS: Answer(b'{"keys": [], "keys": []}')},
    "huge": {JWKS: Answer(b'{"keys": [' + b" " * 2_000_000 + b"]}")},
    "compressed": {JWKS: Answer(b"\x1f\x8b\x08", headers={"Content-Type": JSON, "Content-Encoding": "gzip"})},
    "another content type": {JWKS: Answer(b'{"keys": []}', headers={"Content-Type": "text/plain"})},
    "no content type": {JWKS: Answer(b'{"keys": []}', headers={})},
    "a redirect": {JWKS: Answer(b"", 302, {"Location": "/elsewhere", "Content-Type": JSON})},
    "status 500": {JWKS: Answer(b"{}", 500)},
    "status 404": {JWKS: Answer(b"{}", 404)},
    "status 204": {JWKS: Answer(b"", 204)},
    "discovery HTML": {DISCOVERY: HTML},
    "discovery of another issuer": {
        DISCOVERY: Answer(b'{"issuer": "https://other.example", "jwks_uri": "https://other.example/jwks"}')
    },
    "discovery without an issuer": {DISCOVERY: Answer(b'{"jwks_uri": "https://other.example/jwks"}')},
    "discovery redirected": {DISCOVERY: Answer(b"", 301, {"Location": "/elsewhere", "Content-Type": JSON})},
}


@pytest.mark.parametrize("answers", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_no_key_set_and_no_reason_to_turn_anybody_away(
    issuer: Issuer, clock: Clock, verifier: OidcVerifier, answers: dict[str, Answer]
) -> None:
    """503 where there are no keys yet; where there are, they go on serving. What is good again is taken."""
    issuer.answers |= answers
    with pytest.raises(IdentityUnavailable):
        await verifier.verify(issuer.sign())
    issuer.answers.clear()
    clock.now += RETRY_S
    token = issuer.sign()
    assert (await verifier.verify(token)).subject == "ann"
    issuer.answers |= answers
    clock.now += FRESH_S + 1
    await verifier.verify(token)
    await settled()
    assert (await verifier.verify(token)).subject == "ann"
    assert issuer.requests["/elsewhere"] == 0


UNSAFE_URLS = (
    *("http://issuer.example/jwks", "file:///etc/passwd", "", "jwks", "//issuer.example/jwks", 7, None),
    *(
        "https://user:pass@issuer.example/jwks",
        "http://127.0.0.1.issuer.example/",
        "https://127.0.0.1:99999/",
    ),
)


@pytest.mark.parametrize("url", UNSAFE_URLS, ids=lambda url: str(url)[:40])
async def test_discovery_can_lead_to_no_unsafe_place(
    issuer: Issuer, verifier: OidcVerifier, url: object
) -> None:
    """Not over plain HTTP, not into the file system, not with somebody's password."""
    issuer.answers[DISCOVERY] = Answer(json.dumps({"issuer": issuer.url, "jwks_uri": url}).encode())
    with pytest.raises(IdentityUnavailable):
        await verifier.verify(issuer.sign())


@pytest.mark.parametrize(
    ("issuer_url", "keys_url", "down"),
    [
        ("https://login.example.com", "https://keys.example.com/jwks", False),
        ("https://login.example.com", "http://127.0.0.1:9/jwks", True),
        ("HTTPS://login.example.com", "HTTP://127.0.0.1:9/jwks", True),
        ("http://127.0.0.1:8", "http://127.0.0.1:9/jwks", False),
        ("http://127.0.0.1:8", "https://keys.example.com/jwks", False),
    ],
)
def test_discovery_leads_from_https_to_https_alone(issuer_url: str, keys_url: str, down: bool) -> None:
    """Keys on this machine are for an issuer on this machine."""
    assert leads_down(issuer_url, keys_url) is down


@pytest.mark.parametrize("said", ["/", "UPPER", "prefix"])
async def test_the_discovered_issuer_is_ours_to_the_letter(
    issuer: Issuer, verifier: OidcVerifier, said: str
) -> None:
    """OpenID Connect Discovery 1.0, section 4.3."""
    name = {"/": issuer.url + "/", "UPPER": issuer.url.upper(), "prefix": issuer.url[:-1]}[said]
    issuer.answers[DISCOVERY] = Answer(json.dumps({"issuer": name, "jwks_uri": issuer.jwks_url}).encode())
    with pytest.raises(IdentityUnavailable):
        await verifier.verify(issuer.sign())


# -- down and slow ---------------------------------------------------------------------------------


async def test_an_issuer_that_is_down_at_the_start_is_asked_again(
    issuer: Issuer, clock: Clock, verifier: OidcVerifier
) -> None:
    """503 with a time to come back, never 401; not each request knocks at the closed door."""
    token = issuer.sign()
    issuer.down()
    with pytest.raises(IdentityUnavailable) as refused:
        await verifier.verify(token)
    assert refused.value.retry_after_ms == RETRY_S * 1000
    assert not await verifier.ready()
    issuer.up()
    with pytest.raises(IdentityUnavailable):
        await verifier.verify(token)
    assert issuer.requests[JWKS] == 0
    clock.now += RETRY_S
    assert await verifier.ready()
    assert (await verifier.verify(token)).subject == "ann"


async def test_old_keys_serve_until_their_bound_while_the_issuer_is_down(
    issuer: Issuer, clock: Clock, verifier: OidcVerifier
) -> None:
    """Then nobody is let in and nobody is told that his token is bad; recovery needs no restart."""
    token, start = issuer.sign(), clock.now
    await verifier.verify(token)
    issuer.down()
    for age in (FRESH_S + 1, BOUND_S / 2, BOUND_S):
        clock.now = start + age
        assert (await verifier.verify(token)).subject == "ann"
        assert await verifier.ready()
        await settled()
    assert issuer.requests[JWKS] == 1
    clock.now = start + BOUND_S + 1
    with pytest.raises(IdentityUnavailable):
        await verifier.verify(token)
    assert not await verifier.ready()
    issuer.up()
    clock.now += RETRY_S
    assert (await verifier.verify(token)).subject == "ann"


async def test_an_unknown_key_of_an_issuer_that_is_down_is_nobodys_fault(
    issuer: Issuer, clock: Clock, verifier: OidcVerifier
) -> None:
    """Nobody can tell whether it is a new one: 503. Once the issuer has answered, 401."""
    await verifier.verify(issuer.sign())
    key = issuer.es256
    strange = key.token(key.header(kid="strange"), key.claims())
    issuer.down()
    for _ in range(2):
        with pytest.raises(IdentityUnavailable):
            await verifier.verify(strange)
        assert (await verifier.verify(issuer.sign())).subject == "ann"
    issuer.up()
    clock.now += UNKNOWN_S
    with pytest.raises(TokenInvalid):
        await verifier.verify(strange)


@pytest.mark.parametrize("path", [DISCOVERY, JWKS])
async def test_a_slow_issuer_is_waited_for_so_long_and_no_longer(
    issuer: Issuer, clock: Clock, path: str
) -> None:
    """The whole fetch is bounded, not each of its reads; whoever waits gets 503."""
    jwks_url = issuer.jwks_url if path == JWKS else None
    issuer.hold()
    async with verifying(issuer, clock, jwks_url=jwks_url, fetch_s=0.3) as verifier:
        with pytest.raises(IdentityUnavailable):
            await verifier.verify(issuer.sign())
    assert issuer.requests == {path: 1}


# -- how often the issuer is asked -----------------------------------------------------------------


async def test_many_first_requests_share_one_fetch(issuer: Issuer, verifier: OidcVerifier) -> None:
    """50 at once."""
    issuer.hold()
    token, subjects = issuer.sign(), []

    async def ask() -> None:
        subjects.append((await verifier.verify(token)).subject)

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(ask)
        await arrived(issuer)
        assert subjects == []
        issuer.release()
    assert subjects == ["ann"] * 50
    assert issuer.requests == {DISCOVERY: 1, JWKS: 1}


async def test_whoever_started_a_fetch_may_leave(issuer: Issuer, verifier: OidcVerifier) -> None:
    """Its cancellation takes nothing from those who wait with it."""
    issuer.hold()
    token, subjects = issuer.sign(), []
    first = anyio.CancelScope()

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            subjects.append((await verifier.verify(token)).subject)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, first)
        await arrived(issuer)
        for _ in range(3):
            tasks.start_soon(ask, anyio.CancelScope())
        await anyio.lowlevel.checkpoint()
        first.cancel()
        await anyio.lowlevel.checkpoint()
        issuer.release()
    assert first.cancelled_caught
    assert subjects == ["ann"] * 3
    assert issuer.requests == {DISCOVERY: 1, JWKS: 1}


async def test_a_fetch_goes_on_when_everybody_has_left(issuer: Issuer, verifier: OidcVerifier) -> None:
    """The next one finds its keys."""
    issuer.hold()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(verifier.verify, issuer.sign())
        await arrived(issuer)
        tasks.cancel_scope.cancel()
    issuer.release()
    assert (await verifier.verify(issuer.sign())).subject == "ann"
    assert issuer.requests == {DISCOVERY: 1, JWKS: 1}


async def test_closing_ends_a_fetch_that_hangs(issuer: Issuer, clock: Clock) -> None:
    """Whoever waits for it is told that nobody can tell."""
    issuer.hold()
    async with verifying(issuer, clock) as verifier:
        refused = []

        async def ask() -> None:
            try:
                await verifier.verify(issuer.sign())
            except IdentityUnavailable as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await arrived(issuer)
            await verifier.aclose()
    assert len(refused) == 1


async def test_keys_are_refreshed_behind_a_request(
    issuer: Issuer, clock: Clock, verifier: OidcVerifier
) -> None:
    """Nobody waits for it: the old keys answer while the issuer still thinks."""
    token = issuer.sign()
    await verifier.verify(token)
    clock.now += FRESH_S
    await verifier.verify(token)
    assert issuer.requests[JWKS] == 1
    issuer.hold()
    clock.now += 1
    for _ in range(3):
        assert (await verifier.verify(token)).subject == "ann"
    issuer.release()
    await settled()
    assert issuer.requests[JWKS] == 2
    await verifier.verify(token)
    assert issuer.requests[JWKS] == 2


async def test_a_new_key_is_known_after_one_fetch(issuer: Issuer, verifier: OidcVerifier) -> None:
    """And a removed one is unknown after it."""
    old = issuer.sign()
    await verifier.verify(old)
    issuer.rotate()
    assert (await verifier.verify(old)).subject == "ann"
    assert (await verifier.verify(issuer.sign())).subject == "ann"
    assert issuer.requests[JWKS] == 2
    with pytest.raises(TokenInvalid):
        await verifier.verify(old)


async def test_a_removed_key_is_refused_once_keys_were_refreshed_by_age(
    issuer: Issuer, clock: Clock, verifier: OidcVerifier
) -> None:
    """Even when nobody brings a new one."""
    old = issuer.sign()
    await verifier.verify(old)
    issuer.rotate()
    clock.now += FRESH_S + 1
    await verifier.verify(old)
    await settled()
    assert issuer.requests[JWKS] == 2
    with pytest.raises(TokenInvalid):
        await verifier.verify(old)


async def test_leaving_in_the_middle_of_a_look_buys_no_second_one(
    issuer: Issuer, verifier: OidcVerifier
) -> None:
    """A flood of callers who ask with unknown names and hang up costs one fetch as well."""
    await verifier.verify(issuer.sign())
    key = issuer.es256
    while issuer.arrived.acquire(blocking=False):
        pass  # those of the first fetch
    issuer.hold()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(verifier.verify, key.token(key.header(kid="first"), key.claims()))
        await arrived(issuer)
        tasks.cancel_scope.cancel()
    issuer.release()
    await settled()
    for number in range(20):
        with pytest.raises(TokenInvalid):
            await verifier.verify(key.token(key.header(kid=f"later {number}"), key.claims()))
    assert issuer.requests[JWKS] == 2


async def test_a_look_that_saw_nothing_is_repeated_soon(
    issuer: Issuer, clock: Clock, verifier: OidcVerifier
) -> None:
    """An unknown name while the issuer is down doesn't keep its new key out for half a minute."""
    await verifier.verify(issuer.sign())
    key = issuer.es256
    issuer.down()
    with pytest.raises(IdentityUnavailable):
        await verifier.verify(key.token(key.header(kid="nobody's"), key.claims()))
    issuer.up()
    issuer.rotate()
    clock.now += RETRY_S
    assert (await verifier.verify(issuer.sign())).subject == "ann"


async def test_a_flood_of_unknown_keys_costs_one_fetch_each_half_minute(
    issuer: Issuer, clock: Clock, verifier: OidcVerifier
) -> None:
    """However many names, one after the other or at once; good tokens pass meanwhile."""
    await verifier.verify(issuer.sign())
    key = issuer.es256

    async def refused(name: str) -> None:
        with pytest.raises(TokenInvalid):
            await verifier.verify(key.token(key.header(kid=name), key.claims()))

    for fetches in (2, 3):
        for number in range(20):
            await refused(f"one after the other {number}")
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(refused, f"at once {number}")
        clock.now += UNKNOWN_S - 1
        await refused("a second too early")
        assert issuer.requests[JWKS] == fetches
        assert (await verifier.verify(issuer.sign())).subject == "ann"
        clock.now += 1
