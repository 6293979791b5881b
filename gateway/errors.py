"""Every failure the gateway can name, as one tree; each class has a stable code.

    GatewayError
    ├── InvalidRequest                     the caller's input is wrong
    │   ├── UnknownField · MalformedBody · InvalidField · KnowledgeBaseRequired
    │   ├── UnsupportedContentType · BodyTooLarge · MethodNotAllowed · IdempotencyMismatch
    │   │   └── DocumentTypeRefused        not among the types that this installation imports
    ├── Unauthenticated                    no identity
    │   └── TokenMissing · TokenInvalid · TokenExpired
    ├── Forbidden                          an identity without the right
    │   └── ScopeMissing · PrincipalRevoked
    ├── NotFound                           missing, or somebody else's: the two look alike
    │   └── KnowledgeBaseNotFound
    ├── Conflict                           the world moved on
    │   ├── ReleaseConflict · IllegalTransition · StaleFence · ApiKeyNameTaken
    │   ├── TooManyAclClasses              somebody could see more classes than a filter may list
    │   ├── PermissionsChanged             ask again: the evidence is no longer the caller's
    │   └── Stopped · Killed               somebody ended the request before its first byte
    ├── Rejection                          admission said no
    │   ├── RateLimited · QuotaExceeded    this caller's budget (429)
    │   └── Overloaded · ShuttingDown      shared capacity (503)
    ├── Unavailable                        a part is down (503)
    │   ├── CatalogUnavailable · VectorStoreUnavailable · ObjectStoreUnavailable · StorageFull
    │   ├── EmbedderUnavailable · RerankerUnavailable · UpstreamFailed · AuthorizerUnavailable
    │   ├── IdentityUnavailable · QuotaUnavailable · RevocationFeedStale · ModerationUnavailable
    │   ├── ReleaseUnresolved · EmbeddingSpaceMismatch · NotCalibrated · RestoreUnconfirmed
    ├── DeadlineExceeded                   a stage or the whole ran out of time (504)
    ├── AnswerBlocked                      the output policy stopped an answer that had begun
    ├── DocumentRejected                   one document can't be imported; the reason is for a person
    ├── DocumentUnusable                   one document keeps a release from being built
    ├── BackupDamaged                      a backup or its journal isn't what was written
    ├── InvariantViolated                  a promise of this code is broken: a defect, not bad input
    │   └── ProtocolViolation · UnscopedAccess
    └── ConfigurationError                 the process must not start like this

A refusal for want of evidence is no error. HTTP statuses are mapped in ``gateway.web.problems`` alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class GatewayError(Exception):
    """Base of all; ``code`` is stable, ``detail`` is safe to show to the caller."""

    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Something went wrong inside the gateway"

    def __init__(self, detail: str = "", *, retry_after_ms: int | None = None) -> None:
        super().__init__(detail or self.title)
        self.detail = detail
        self.retry_after_ms = retry_after_ms


class InvalidRequest(GatewayError):
    code = "invalid_request"
    title = "The request is not valid"


class UnknownField(InvalidRequest):
    code = "unknown_field"
    title = "The request names a field that does not exist"


class MalformedBody(InvalidRequest):
    code = "malformed_body"
    title = "The body could not be read"


class InvalidField(InvalidRequest):
    code = "invalid_field"
    title = "A field has a value that is not allowed"


class KnowledgeBaseRequired(InvalidRequest):
    """``permitted`` names what the caller may ask."""

    code = "knowledge_base_required"
    title = "Name the knowledge base to ask"

    def __init__(self, permitted: Sequence[str]) -> None:
        super().__init__(f"name one of: {', '.join(permitted)}")
        self.permitted = tuple(permitted)


class UnsupportedContentType(InvalidRequest):
    code = "unsupported_content_type"
    title = "This content type is not accepted here"


class DocumentTypeRefused(UnsupportedContentType):
    code = "unsupported_type"
    title = "Documents of this type are not imported here"


class BodyTooLarge(InvalidRequest):
    code = "body_too_large"
    title = "The body is larger than allowed"


class MethodNotAllowed(InvalidRequest):
    code = "method_not_allowed"
    title = "This path does not answer to this method"


class IdempotencyMismatch(InvalidRequest):
    code = "idempotency_mismatch"
    title = "This Idempotency-Key was used with another request"


class Unauthenticated(GatewayError):
    code = "unauthenticated"
    title = "A valid token is required"


class TokenMissing(Unauthenticated):
    code = "token_missing"
    title = "No bearer token was sent"


class TokenInvalid(Unauthenticated):
    code = "token_invalid"
    title = "The token is not valid"


class TokenExpired(Unauthenticated):
    code = "token_expired"
    title = "The token has expired"


class Forbidden(GatewayError):
    code = "forbidden"
    title = "Not allowed"


class ScopeMissing(Forbidden):
    code = "scope_missing"
    title = "The token lacks the scope for this"


class PrincipalRevoked(Forbidden):
    code = "principal_revoked"
    title = "Access was revoked"


class NotFound(GatewayError):
    code = "not_found"
    title = "There is no such thing"


class KnowledgeBaseNotFound(NotFound):
    code = "knowledge_base_not_found"
    title = "There is no such knowledge base"


class Conflict(GatewayError):
    code = "conflict"
    title = "The state has changed in the meantime"


class ReleaseConflict(Conflict):
    code = "release_conflict"
    title = "Another release was activated, or its documents changed, in the meantime"


class IllegalTransition(Conflict):
    code = "illegal_transition"
    title = "This state does not lead there"


class StaleFence(Conflict):
    code = "stale_fence"
    title = "Another worker has taken this task over"


class ApiKeyNameTaken(Conflict):
    code = "api_key_name_taken"
    title = "Somebody else has made an API key of this name"


class TooManyAclClasses(Conflict):
    code = "too_many_acl_classes"
    title = "The knowledge base has too many different ACLs"


class PermissionsChanged(Conflict):
    code = "permissions_changed"
    title = "Permissions changed while the question was answered; ask again"


class Stopped(Conflict):
    code = "stopped"
    title = "The answer was stopped by its asker"


class Killed(Conflict):
    code = "killed"
    title = "The answer was stopped by an operator"


@dataclass(frozen=True, slots=True)
class SpentBudget:
    """The budget that said no: ``limit`` in ``window_s``, what is left, and when there is more."""

    policy: str
    limit: int
    window_s: int
    remaining: int
    reset_s: int


class Rejection(GatewayError):
    """``stage`` names who said no, as in the label of ``gateway_rejections_total``."""

    code = "rejected"
    title = "Not admitted"
    stage = "admission"

    def __init__(
        self, detail: str = "", *, retry_after_ms: int | None = None, budget: SpentBudget | None = None
    ) -> None:
        super().__init__(detail, retry_after_ms=retry_after_ms)
        self.budget = budget


class RateLimited(Rejection):
    code = "rate_limited"
    title = "Too many requests"
    stage = "rate"


class QuotaExceeded(Rejection):
    code = "quota_exceeded"
    title = "The quota is used up"
    stage = "quota"


class Overloaded(Rejection):
    code = "overloaded"
    title = "All places are taken"

    def __init__(self, bulkhead: str, *, retry_after_ms: int, budget: SpentBudget | None = None) -> None:
        super().__init__(f"all {bulkhead} places are taken", retry_after_ms=retry_after_ms, budget=budget)
        self.stage = bulkhead


class ShuttingDown(Rejection):
    code = "shutting_down"
    title = "This process is shutting down"
    stage = "draining"


class Unavailable(GatewayError):
    code = "unavailable"
    title = "A part of the service is not available"


class CatalogUnavailable(Unavailable):
    code = "catalog_unavailable"
    title = "The catalog is not available"


class VectorStoreUnavailable(Unavailable):
    code = "vector_store_unavailable"
    title = "The vector store is not available"


class ObjectStoreUnavailable(Unavailable):
    code = "object_store_unavailable"
    title = "The object store is not available"


class StorageFull(ObjectStoreUnavailable):
    code = "storage_full"
    title = "There is no room left to store anything"


class EmbedderUnavailable(Unavailable):
    code = "embedder_unavailable"
    title = "The embedder is not available"


class RerankerUnavailable(Unavailable):
    code = "reranker_unavailable"
    title = "The reranker is not available"


class UpstreamFailed(Unavailable):
    code = "upstream_failed"
    title = "The answer model failed"


class AuthorizerUnavailable(Unavailable):
    code = "authorizer_unavailable"
    title = "Permissions can't be determined right now"


class IdentityUnavailable(Unavailable):
    code = "identity_unavailable"
    title = "Identities can't be verified right now"


class QuotaUnavailable(Unavailable):
    code = "quota_unavailable"
    title = "The shared quota can't be read right now"


class RevocationFeedStale(Unavailable):
    code = "revocation_feed_stale"
    title = "Revocations can't be followed right now"


class ModerationUnavailable(Unavailable):
    code = "moderation_unavailable"
    title = "Answers can't be checked right now"


class ReleaseUnresolved(Unavailable):
    code = "release_unresolved"
    title = "The knowledge base has no active release"


class EmbeddingSpaceMismatch(Unavailable):
    code = "embedding_space_mismatch"
    title = "The query embedder does not belong to the release's embedding space"


class NotCalibrated(Unavailable):
    code = "not_calibrated"
    title = "The evidence gate has no thresholds for this embedding space"


class RestoreUnconfirmed(Unavailable):
    code = "restore_unconfirmed"
    title = "A restore waits for an operator to confirm it"


class DeadlineExceeded(GatewayError):
    code = "deadline_exceeded"
    title = "Time ran out"

    def __init__(self, stage: str, detail: str = "") -> None:
        super().__init__(detail or f"the {stage} stage ran out of time")
        self.stage = stage


class AnswerBlocked(GatewayError):
    code = "answer_blocked"
    title = "The output policy stopped this answer"


class DocumentRejected(GatewayError):
    """One document can't be imported. ``reason`` is one of ``ingest.reasons``."""

    code = "document_rejected"
    title = "The document can't be imported"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class DocumentUnusable(GatewayError):
    """One document keeps a release from being built; the detail names it and says what helps."""

    code = "document_unusable"
    title = "A document can't be taken into the release"

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"{source}: {why}")


class BackupDamaged(GatewayError):
    code = "backup_damaged"
    title = "The backup is damaged"


class InvariantViolated(GatewayError):
    code = "internal_error"
    title = "Something went wrong inside the gateway"


class ProtocolViolation(InvariantViolated):
    """An event that the stream protocol doesn't allow now."""


class UnscopedAccess(InvariantViolated):
    """Protected knowledge was about to be touched without a matching scope and release."""


class ConfigurationError(GatewayError):
    """The process must not start like this; ``reason`` is a stable code."""

    code = "configuration_error"
    title = "The configuration does not allow this"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
