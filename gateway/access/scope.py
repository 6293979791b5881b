"""AccessScope: what one caller may see of one knowledge base, at one moment."""

import hashlib
import json
from dataclasses import dataclass, field

from gateway.errors import UnscopedAccess


@dataclass(frozen=True, slots=True)
class AccessScope:
    """Built by the Authorizer alone, from a verified principal and the catalog.

    ``denied_as`` holds names that were revoked: they let nobody in and still keep him out.
    ``permitted_classes`` is a pre-filter; the re-check against the catalog decides. ``digest`` names
    the permission, not the person: two callers with equal classes may share what was computed for one.
    Raises UnscopedAccess when a part is missing, so an empty scope can't exist.
    """

    tenant: str
    kb_id: str
    knowledge_base: str
    acl_revision: int
    revocation_epoch: int
    incarnation: str
    principals: frozenset[str]
    permitted_classes: frozenset[int]
    denied_as: frozenset[str] = frozenset()
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        if not (self.tenant and self.kb_id and self.incarnation and self.principals):
            raise UnscopedAccess("an access scope lacks a part")
        if not self.permitted_classes or 0 in self.permitted_classes:
            raise UnscopedAccess("an access scope needs permitted classes")
        parts = [self.tenant, self.kb_id, self.incarnation, sorted(self.permitted_classes)]
        canonical = json.dumps(parts, separators=(",", ":")).encode()
        object.__setattr__(self, "digest", hashlib.sha256(canonical).hexdigest()[:32])
