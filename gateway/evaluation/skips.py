"""Skips: how often a gateway left its reranker out, as its own metrics count it."""

import re
from collections import Counter

import httpx2

from gateway.errors import GatewayError
from gateway.evaluation.gateways import Target

_SKIPS = re.compile(r'^gateway_rerank_skips_total\{reason="(\w+)"\} (\S+)$', re.MULTILINE)
_PATIENCE_S = 30.0


class MetricsUnreadable(GatewayError):
    """The gateway that is evaluated doesn't show its metrics."""

    code = "metrics_unreadable"
    title = "The gateway's metrics can't be read"


def rerank_skips(target: Target) -> Counter[str]:
    """Reason -> searches and answers since the gateway's start. Raises MetricsUnreadable."""
    try:
        with httpx2.Client(transport=target.transport, timeout=_PATIENCE_S) as http:
            answer = http.get(f"{target.url}/metrics").raise_for_status()
    except httpx2.HTTPError as error:
        raise MetricsUnreadable(str(error)) from error
    return Counter({reason: int(float(count)) for reason, count in _SKIPS.findall(answer.text)})
