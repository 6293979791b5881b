"""An issuer's documents over HTTP: its discovery document and its keys (OpenID Connect Discovery 1.0)."""

import asyncio
import ipaddress
from collections.abc import Mapping

import httpx2

from gateway.adapters.identity.jwks import KeySet
from gateway.adapters.identity.signature import json_object
from gateway.errors import ConfigurationError, IdentityUnavailable

_WELL_KNOWN = "/.well-known/openid-configuration"
_MAX_BYTES = 262_144


class IssuerDocuments:
    """Fetches the keys, from ``jwks_url`` or from where the issuer's discovery document says.

    A fetch takes at most ``total_s`` seconds whatever the issuer does. Follows no redirect and reads no
    proxy from the environment. Raises ConfigurationError for an address that can't be used.
    """

    def __init__(self, issuer: str, jwks_url: str | None, *, total_s: float) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url
        for url in (issuer, jwks_url):
            if url is not None and not is_safe(url):
                raise ConfigurationError(
                    "oidc_url_unusable",
                    "an address of the issuer isn't https (http is for the loopback interface only), "
                    "or holds a user, a password or a fragment",
                )
        self._total_s = total_s
        self._client = httpx2.AsyncClient(
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
            verify=httpx2.create_ssl_context(),  # an issuer of one's own CA: SSL_CERT_FILE is heeded
            timeout=total_s,
            limits=httpx2.Limits(max_keepalive_connections=0),  # minutes pass between two fetches
        )

    async def key_set(self) -> KeySet:
        """Raises IdentityUnavailable; its detail names what is wrong, without the document's content."""
        try:
            async with asyncio.timeout(self._total_s):
                document = await self._object(self._jwks_url or await self._discovered())
        except TimeoutError:
            raise IdentityUnavailable("the issuer took too long") from None
        try:
            return KeySet.parse(document)
        except ValueError:
            raise IdentityUnavailable("the issuer's key set has no usable key") from None

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _discovered(self) -> str:
        document = await self._object(self._issuer.removesuffix("/") + _WELL_KNOWN)
        if document.get("issuer") != self._issuer:
            raise IdentityUnavailable("the discovery document belongs to another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not is_safe(url) or leads_down(self._issuer, url):
            raise IdentityUnavailable("the discovery document names no safe address of the keys")
        return url

    async def _object(self, url: str) -> Mapping[str, object]:
        try:
            async with self._client.stream("GET", url) as response:
                if response.status_code != 200:
                    raise IdentityUnavailable(f"the issuer answered with status {response.status_code}")
                if not _is_json(response.headers.get("content-type", "")):
                    raise IdentityUnavailable("the issuer answered with something else than JSON")
                return json_object(await _bounded_body(response))
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise IdentityUnavailable("the issuer can't be reached") from None
        except ValueError:
            raise IdentityUnavailable("the issuer's document can't be read") from None


async def _bounded_body(response: httpx2.Response) -> bytes:
    """As it came over the wire: a compressed body could be of any size."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > _MAX_BYTES:
            raise IdentityUnavailable("the issuer's document is too large")
    return bytes(body)


def _is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


def is_safe(url: str) -> bool:
    """https, or http that doesn't leave this machine; without a user and a fragment."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return False
    if not parsed.host or parsed.userinfo or parsed.fragment or not 0 < (parsed.port or 443) < 65_536:
        return False
    return parsed.scheme == "https" or (parsed.scheme == "http" and _is_loopback(parsed.host))


def leads_down(issuer: str, url: str) -> bool:
    """From https to http, though it be on this machine: any of its accounts could serve keys there."""
    return httpx2.URL(issuer).scheme == "https" != httpx2.URL(url).scheme


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
