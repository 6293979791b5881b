"""Watching: /metrics of running processes, read again and again for a while, or from files."""

import time
from collections.abc import Sequence
from pathlib import Path

import httpx2

from gateway.client import ServerUnreachable
from gateway.observe.exposition import Course, Growth, Reading, UnusableMetrics

_LOOK_EVERY_S = 0.5
_PATIENCE_S = 10.0


def watched(urls: Sequence[str], seconds: float) -> tuple[Growth, float]:
    """Of each process, and how long it was watched. Raises ServerUnreachable and UnusableMetrics."""
    with httpx2.Client(timeout=_PATIENCE_S, trust_env=False) as http:
        began = time.monotonic()
        courses = [Course(_read(http, url)) for url in urls]
        while True:
            time.sleep(max(0.0, min(_LOOK_EVERY_S, began + seconds - time.monotonic())))
            at = time.monotonic()
            for url, course in zip(urls, courses, strict=True):
                course.add(_read(http, url))
            if at >= began + seconds:
                return Growth(courses), at - began


def saved(before: Sequence[Path], after: Sequence[Path]) -> Growth:
    """Two files of each process. Raises UnusableMetrics."""
    return Growth([Course(_from(first), _from(last)) for first, last in zip(before, after, strict=True)])


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
