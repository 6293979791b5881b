"""Watching: /metrics of running processes, read again and again for a while, or from files."""

import time
from collections.abc import Sequence
from pathlib import Path

import httpx2

from gateway.client import ServerUnreachable
from gateway.observe.exposition import Growth, Reading, UnusableMetrics

_LOOK_EVERY_S = 0.5
_PATIENCE_S = 10.0


def watched(urls: Sequence[str], seconds: float) -> tuple[Growth, float]:
    """Of each process, and how long it was watched. Raises ServerUnreachable and UnusableMetrics."""
    readings: list[list[Reading]] = [[] for _ in urls]
    with httpx2.Client(timeout=_PATIENCE_S, trust_env=False) as http:
        began = time.monotonic()
        while True:
            at = time.monotonic()
            for url, its in zip(urls, readings, strict=True):
                its.append(_read(http, url))
            left_s = began + seconds - time.monotonic()
            if left_s <= 0:
                return Growth(readings), at - began
            time.sleep(min(_LOOK_EVERY_S, left_s))


def saved(before: Sequence[Path], after: Sequence[Path]) -> Growth:
    """Two files of each process. Raises UnusableMetrics."""
    return Growth([[_from(first), _from(last)] for first, last in zip(before, after, strict=True)])


def _read(http: httpx2.Client, url: str) -> Reading:
    try:
        answer = http.get(f"{url.rstrip('/')}/metrics")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ServerUnreachable(f"{url} does not answer") from error
    if answer.is_error:
        raise UnusableMetrics(f"{url}/metrics answers {answer.status_code}")
    return Reading(answer.text)


def _from(path: Path) -> Reading:
    try:
        return Reading(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableMetrics(f"{path.name} can't be read as text") from error
