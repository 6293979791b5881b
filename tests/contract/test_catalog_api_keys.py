"""Contract of ApiKeyStore: keys come back whole, to their tenant, and a revoked one stays revoked."""

from dataclasses import replace

import pytest

from gateway.access.apikey import ApiKey, ApiKeyStore
from gateway.errors import ApiKeyNameTaken, NotFound
from tests.contract.catalog_world import HOSTILE_NAMES, Catalog, Clock

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def store(catalog: ApiKeyStore) -> ApiKeyStore:
    """The catalog under test, as keys see it."""
    return catalog


def key(clock: Clock, key_id: str = "k1", tenant: str = "acme", **changes: object) -> ApiKey:
    made = ApiKey(
        key_id=key_id,
        tenant=tenant,
        name="ci",
        groups=frozenset({"staff", "builders"}),
        scopes=frozenset({"ask", "ingest"}),
        digest="d" * 64,
        created_by="ann",
        created_at=clock(),
        expires_at=clock() + 600.5,
        revoked_at=None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # each test names fields that there are


async def test_a_key_comes_back_whole(store: ApiKeyStore, clock: Clock) -> None:
    """With and without an end, with and without groups."""
    keys = [key(clock), key(clock, "k2", expires_at=None, groups=frozenset())]
    for one in keys:
        await store.add_api_key(one)
    assert [await store.api_key(one.key_id) for one in keys] == keys


async def test_an_unknown_key_is_none(store: ApiKeyStore, clock: Clock) -> None:
    """Ids are compared whole."""
    await store.add_api_key(key(clock))
    for key_id in ("", "k", "k11", "K1", "%", "k_"):
        assert await store.api_key(key_id) is None


async def test_keys_are_listed_newest_first(store: ApiKeyStore, clock: Clock) -> None:
    """Those of one moment too, and whatever has become of them."""
    for number in range(4):
        await store.add_api_key(key(clock, f"k{number}", expires_at=clock() - 1 if number == 1 else None))
    await store.revoke_api_key("acme", "k2")
    assert [one.key_id for one in await store.api_keys("acme")] == ["k3", "k2", "k1", "k0"]


async def test_names_need_not_be_unique(store: ApiKeyStore, clock: Clock) -> None:
    """A new key of an old name replaces nothing, so that keys can overlap while they are changed."""
    await store.add_api_key(key(clock, "k1"))
    await store.add_api_key(key(clock, "k2"))
    await store.revoke_api_key("acme", "k1")
    left = await store.api_key("k2")
    assert left is not None
    assert left.revoked_at is None


async def test_a_revoked_key_says_since_when(store: ApiKeyStore, clock: Clock) -> None:
    """Nothing else about it changes, and nothing about its neighbour."""
    first, second = key(clock), key(clock, "k2")
    for one in (first, second):
        await store.add_api_key(one)
    clock.advance(60)
    revoked = await store.revoke_api_key("acme", "k1")
    assert revoked == replace(first, revoked_at=clock())
    assert await store.api_key("k1") == revoked
    assert await store.api_key("k2") == second


async def test_revoking_twice_keeps_the_first_moment(store: ApiKeyStore, clock: Clock) -> None:
    """The answer is the same."""
    await store.add_api_key(key(clock))
    revoked = await store.revoke_api_key("acme", "k1")
    clock.advance(60)
    assert await store.revoke_api_key("acme", "k1") == revoked
    assert await store.api_key("k1") == revoked


async def test_revoking_a_key_raises_the_epoch_once(
    catalog: Catalog, store: ApiKeyStore, clock: Clock
) -> None:
    """So that answers that run with it are looked at again; its neighbours' tenant isn't."""
    await store.add_api_key(key(clock))
    await store.add_api_key(key(clock, "k2", tenant="globex"))
    for _ in range(2):
        await store.revoke_api_key("acme", "k1")
        assert (await catalog.tenant_stamp("acme")).revocation_epoch == 1
    assert (await catalog.tenant_stamp("globex")).revocation_epoch == 0


async def test_keys_of_another_tenant_are_out_of_sight_and_reach(store: ApiKeyStore, clock: Clock) -> None:
    """Missing and foreign look alike; nothing is written."""
    mine = key(clock)
    await store.add_api_key(mine)
    assert await store.api_keys("globex") == []
    for tenant, key_id in (("globex", "k1"), ("acme", "none"), ("", "k1")):
        with pytest.raises(NotFound):
            await store.revoke_api_key(tenant, key_id)
    assert await store.api_key("k1") == mine


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name[:12]))
async def test_hostile_names_are_kept_literally(store: ApiKeyStore, clock: Clock, name: str) -> None:
    """In every field that a person fills, and as an id."""
    await store.add_api_key(key(clock))
    hostile = key(clock, "k2", name, name=name, groups=frozenset({name}), created_by=name)
    await store.add_api_key(hostile)
    assert await store.api_key("k2") == hostile
    assert await store.api_keys(name) == [hostile]
    assert await store.api_key(name) is None
    with pytest.raises(NotFound):
        await store.revoke_api_key("acme", name)


async def test_a_name_belongs_to_whoever_had_it_first(store: ApiKeyStore, clock: Clock) -> None:
    """Within its tenant, and also after its keys were revoked."""
    await store.add_api_key(key(clock, "k1"))
    await store.add_api_key(key(clock, "k2"))
    await store.revoke_api_key("acme", "k1")
    with pytest.raises(ApiKeyNameTaken):
        await store.add_api_key(key(clock, "k3", created_by="bob"))
    await store.add_api_key(key(clock, "k4", tenant="globex", created_by="bob"))
    assert await store.api_key("k3") is None
