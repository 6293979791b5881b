"""Services: everything the routes use, put together by bootstrap and closed by it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.access.apikey import ApiKeyIssuer, ApiKeyStore
from gateway.access.authorizer import Authorizer
from gateway.access.principal import IdentityVerifier
from gateway.admission.bulkhead import Bulkhead
from gateway.admission.rate import RequestRate
from gateway.admission.share import TenantShares
from gateway.answer.conversation import TurnStore
from gateway.answer.explaining import Explainer
from gateway.answer.lookup import KnowledgeLookup
from gateway.answer.lookup_tool import LookupTool
from gateway.answer.orchestrator import Orchestrator
from gateway.answer.search import PermittedSearch
from gateway.ingest.catalog import ReleaseStore, TaskStore, VersionStore
from gateway.ingest.governance import Governance
from gateway.ingest.objects import ObjectStore
from gateway.observe.audit import AuditLog
from gateway.observe.metrics import Metrics
from gateway.observe.recorder import TraceRecorder
from gateway.observe.tracelog import TraceStore
from gateway.settings import Settings
from gateway.stream.acknowledgement import EndedAnswers
from gateway.stream.feed import RevocationFeed
from gateway.stream.orders import OrderDesk
from gateway.stream.registry import SessionRegistry
from gateway.stream.revocation import RevocationCatalog
from gateway.web.readiness import Readiness


class KnowledgeCatalog(
    TaskStore,
    VersionStore,
    ReleaseStore,
    Governance,
    RevocationCatalog,
    ApiKeyStore,
    AuditLog,
    TraceStore,
    TurnStore,
    Protocol,
):
    """The catalog as the routes see it: one object, several ports."""


@dataclass(frozen=True, slots=True)
class Services:
    """One gateway's parts. ``wake_worker`` says that a task was accepted; without ``api_keys`` none can be
    made.
    """

    settings: Settings
    verifier: IdentityVerifier
    authorizer: Authorizer
    orchestrator: Orchestrator
    search: PermittedSearch
    lookup: KnowledgeLookup
    lookup_tool: LookupTool
    explainer: Explainer
    traces: TraceRecorder
    catalog: KnowledgeCatalog
    objects: ObjectStore
    registry: SessionRegistry
    feed: RevocationFeed
    orders: OrderDesk
    ended: EndedAnswers
    metrics: Metrics
    rate: RequestRate
    sessions: Bulkhead
    task_streams: Bulkhead
    task_shares: TenantShares
    bulkheads: tuple[Bulkhead, ...]
    readiness: Readiness
    wake_worker: Callable[[], None]
    api_keys: ApiKeyIssuer | None = None
