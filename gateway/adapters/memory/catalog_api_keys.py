"""API keys of the in-memory catalog."""

from dataclasses import replace

from gateway.access.apikey import ApiKey
from gateway.adapters.memory.catalog_rows import CatalogRows
from gateway.errors import ApiKeyNameTaken, NotFound


class ApiKeyRows(CatalogRows):
    """ApiKeyStore over the dicts of the catalog."""

    async def add_api_key(self, key: ApiKey) -> None:
        named = (other for other in self._api_keys.values() if other.name == key.name)
        if any(o.tenant == key.tenant and o.created_by != key.created_by for o in named):
            raise ApiKeyNameTaken()
        self._api_keys[key.key_id] = key

    async def api_key(self, key_id: str) -> ApiKey | None:
        return self._api_keys.get(key_id)

    async def api_keys(self, tenant: str) -> list[ApiKey]:
        return [key for key in reversed(self._api_keys.values()) if key.tenant == tenant]

    async def revoke_api_key(self, tenant: str, key_id: str) -> ApiKey:
        key = self._api_keys.get(key_id)
        if key is None or key.tenant != tenant:
            raise NotFound()
        if key.revoked_at is None:
            self._bump_epoch(tenant)
            key = self._api_keys[key_id] = replace(key, revoked_at=self._clock())
            self._note("api_key", tenant=tenant, key_id=key_id, at=key.revoked_at)
        return key
