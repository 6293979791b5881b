"""The quota as the settings say: limits, terms and this process' name among those that share it."""

import os
import secrets
import socket

from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLimits
from gateway.admission.quota_local import LocalQuota
from gateway.settings import Settings

#: after its total cap a call may still be closing, also while its process drains
_CLOSING_S = 30.0


def tenant_limits(settings: Settings) -> QuotaLimits:
    return QuotaLimits(
        settings.quota_concurrency, settings.quota_requests_per_minute, settings.quota_tokens_per_minute
    )


def model_limits(settings: Settings) -> QuotaLimits:
    return QuotaLimits(
        settings.model_concurrency, settings.model_requests_per_minute, settings.model_tokens_per_minute
    )


def local_quota(settings: Settings) -> LocalQuota:
    """For a process that is alone."""
    return LocalQuota(tenant_limits(settings), model_limits(settings))


def quota_terms(settings: Settings) -> QuotaTerms:
    """For processes that share a Redis."""
    return QuotaTerms(
        tenant=tenant_limits(settings),
        model=model_limits(settings),
        lease_s=settings.quota_lease_s,
        total_cap_s=settings.total_cap_ms / 1000 + settings.drain_s + _CLOSING_S,
    )


def quota_name(settings: Settings) -> str:
    """The same when the process is started again: no two may listen on one port of a host.

    On a port that the system chooses it is a new one each time.
    """
    if settings.process_name is not None:
        return settings.process_name
    number = settings.port or f"{os.getpid()}-{secrets.token_hex(3)}"
    return f"{socket.gethostname()}:{number}"
