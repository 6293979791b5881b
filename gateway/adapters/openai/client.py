"""What every client of an OpenAI-compatible endpoint keeps to: its address, its key, its waiting times."""

import email.utils
import logging
import math
import time
from collections.abc import Mapping

import httpx2

from gateway.errors import ConfigurationError

# at DEBUG these print request options, and with them prompts
for _name in ("openai", "httpx2", "httpcore2", "httpx", "httpcore", "aiohttp"):
    logging.getLogger(_name).setLevel(logging.WARNING)

#: uvicorn, and with it vLLM, drops idle connections after 5 s: ours go first, or a call lands on a dead one
KEEPALIVE_S = 3.0
MAX_CONNECTIONS = 1000
PING_S = 1.0
CLOSE_S = 1.0
_MAX_RETRY_AFTER_MS = 3_600_000


def checked_url(base_url: str, part: str) -> str:
    """The URL, when requests can go there; ``part`` says whose it is. Raises ConfigurationError."""
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigurationError(
            f"{part}_base_url_invalid", f"the {part}'s base URL must be http:// or https://"
        )
    return base_url


def checked_key(api_key: str, part: str) -> str:
    """A key that can't stand in a header would only fail later, in an error that shows it.

    Raises ConfigurationError.
    """
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ConfigurationError(f"{part}_api_key_invalid", f"the {part}'s key must be printable ASCII")
    return api_key


def retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """Seconds or an HTTP date (RFC 9110, 10.2.3), at most an hour; None when absent or unreadable.

    ``headers`` are found by lower-case names.
    """
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    if not math.isfinite(seconds):
        return None
    return int(min(max(seconds * 1000, 0.0), _MAX_RETRY_AFTER_MS))
