"""The transport of model calls: the SDK's own over aiohttp, without its two stores of cookies.

A cookie that an endpoint sets for one answer would go with the calls of every tenant, and one that can't be
sent back would fail all of them.
"""

from http.cookiejar import CookieJar
from typing import Any
from urllib.request import Request

import aiohttp
import httpx2

# the SDK makes its sessions in here and lets nobody else make them; gone, it would be missed at the start
from openai._vendor.httpx_aiohttp import AiohttpTransport, Httpx2AiohttpClient


class CookielessClient(Httpx2AiohttpClient):
    """As ``openai.DefaultAioHttpClient``, proxies of the environment included; no cookie is kept or sent."""

    def __init__(self, *, limits: httpx2.Limits) -> None:
        # a redirect would take the passages to another host
        super().__init__(limits=limits, follow_redirects=False, cookies=_NoCookies())

    def _init_transport(self, *_: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return _Transport(**options)

    def _init_proxy_transport(
        self, proxy: httpx2.Proxy, *_: Any, **options: Any
    ) -> httpx2.AsyncBaseTransport:
        return _Transport(proxy=proxy, **options)


class _Transport(AiohttpTransport):
    def get_client(self) -> aiohttp.ClientSession:
        """Made at the first call: it belongs to the loop it is made in."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self.limits.max_connections or 0,
                keepalive_timeout=self.limits.keepalive_expiry,
                ssl=self.ssl_context,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
        )


class _NoCookies(CookieJar):
    def extract_cookies(self, response: Any, request: Request) -> None:
        """Keeps none."""

    def add_cookie_header(self, request: Request) -> None:
        """Sends none."""
