"""Explaining: why a search or an answer ended as it did, told to somebody who may see only some of it."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.access.authorizer import Authorizer, DocumentRef, Recheck
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.admission.stage import stage_time
from gateway.context import Deadline
from gateway.errors import NotFound, PermissionsChanged
from gateway.observe.recorder import TraceRecorder
from gateway.observe.tracelog import Findings, TraceRecord, TraceStore
from gateway.release.catalog import ReleaseCatalog

#: documents that are counted for a caller one by one
_MOST_COUNTED = 200
#: looks at the same trace, while permissions go on changing
_LOOKS = 3


class ReleaseContents(Protocol):
    """Which documents a release holds. Raises CatalogUnavailable."""

    async def documents_in(
        self, tenant: str, release_id: str, classes: Collection[int], limit: int
    ) -> list[DocumentRef]:
        """Those with rows of these ACL classes, by their ids; the classes are a pre-filter only."""
        ...


@dataclass(frozen=True, slots=True)
class Visible:
    """What a caller may see now: knowledge bases by name, and documents of one of them that a search may
    find, of which ``more`` weren't counted.
    """

    knowledge_bases: tuple[str, ...]
    documents: int
    more: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """A trace as one reader may see it now. ``whole``: nothing was left out, so its numbers are told too;
    ``inside``: he operates the tenant.
    """

    record: TraceRecord
    visible: Visible
    whole: bool
    inside: bool

    @property
    def findings(self) -> Findings:
        return self.record.findings


class Explainer:
    """Reads traces for their askers and for operators of their tenant; to anybody else they are missing.

    Whatever a trace quotes is checked again for whoever reads it. Numbers that were counted over a document
    which its asker may not see any more are told to operators only.
    """

    def __init__(
        self,
        *,
        authorizer: Authorizer,
        recheck: Recheck,
        releases: ReleaseCatalog,
        contents: ReleaseContents,
        traces: TraceStore,
        recorder: TraceRecorder,
        check_fresh: Callable[[], None],
        catalog_cap_ms: int,
    ) -> None:
        """``check_fresh`` raises when revocations can't be followed."""
        self._authorizer = authorizer
        self._recheck = recheck
        self._releases = releases
        self._contents = contents
        self._traces = traces
        self._recorder = recorder
        self._check_fresh = check_fresh
        self._catalog_cap_ms = catalog_cap_ms

    async def recorded(
        self,
        principal: Principal,
        deadline: Deadline,
        *,
        request_id: str | None = None,
        trace_id: str | None = None,
    ) -> TraceRecord:
        """As it was kept, for ``explain``. Raises NotFound for a trace that is missing, erased, or somebody
        else's.
        """
        with stage_time(deadline, "catalog", self._catalog_cap_ms):
            record = await self._find(principal.tenant, request_id, trace_id)
        if record is None or not (_inside(principal) or record.subject == principal.subject):
            raise NotFound("there is no such trace")
        return record

    async def explain(self, principal: Principal, record: TraceRecord, deadline: Deadline) -> Explanation:
        """The last thing before it is told: passages and counts by one look, of permissions that are the same
        after it as before it.

        Raises NotFound for a trace of a knowledge base that its asker may not see any more,
        PermissionsChanged when they never stay the same for long enough, PrincipalRevoked.
        """
        self._check_fresh()
        with stage_time(deadline, "catalog", self._catalog_cap_ms):
            for _ in range(_LOOKS):
                scopes = await self._authorizer.permitted(principal)
                explanation = await self._look(principal, record, scopes)
                if await self._authorizer.permitted(principal) == scopes:
                    return explanation
        raise PermissionsChanged()

    async def _look(
        self, principal: Principal, record: TraceRecord, scopes: Sequence[AccessScope]
    ) -> Explanation:
        names = tuple(sorted(scope.knowledge_base for scope in scopes))
        scope = next((one for one in scopes if one.kb_id == record.kb_id), None)
        inside = _inside(principal)
        if scope is None and not inside:
            raise NotFound("there is no such trace")
        listed = [] if scope is None else await self._listed(scope)
        counted, quoted = frozenset(listed[:_MOST_COUNTED]), record.findings.refs
        permitted = await self._permitted(scope, counted | quoted)
        whole = permitted >= quoted
        seen = _seen(record.findings, permitted, counted=inside or whole)
        visible = Visible(names, len(counted & permitted), more=len(listed) > _MOST_COUNTED)
        return Explanation(replace(record, findings=seen), visible, whole, inside)

    async def _listed(self, scope: AccessScope) -> Sequence[DocumentRef]:
        release = await self._releases.active(scope.tenant, scope.kb_id)
        if release is None:
            return []
        return await self._contents.documents_in(
            scope.tenant, release.release_id, scope.permitted_classes, _MOST_COUNTED + 1
        )

    async def _find(self, tenant: str, request_id: str | None, trace_id: str | None) -> TraceRecord | None:
        waiting = self._recorder.waiting(tenant, request_id=request_id, trace_id=trace_id)
        if waiting is not None:
            return waiting
        return await self._traces.trace(tenant, request_id=request_id, trace_id=trace_id)

    async def _permitted(
        self, scope: AccessScope | None, refs: Collection[DocumentRef]
    ) -> frozenset[DocumentRef]:
        """For a reader without a scope nothing is."""
        if scope is None:
            return frozenset()
        verdicts = await self._recheck.check(scope, tuple(refs), time.time())
        return frozenset(ref for ref, reason in verdicts.items() if reason is None)


def _inside(principal: Principal) -> bool:
    return "operate" in principal.scopes


def _seen(findings: Findings, permitted: Collection[DocumentRef], *, counted: bool) -> Findings:
    passages = tuple(passage for passage in findings.passages if passage.ref in permitted)
    if counted:
        return replace(findings, documents=(), passages=passages)
    return Findings(
        mode=findings.mode,
        served_by=findings.served_by,
        fallback=findings.fallback,
        category=findings.category,
        passages=passages,
    )
