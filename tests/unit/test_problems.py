"""Errors as HTTP: one status a class, one form for all, nothing of a defect shown."""

import json
import tempfile

import pytest
from starlette.exceptions import HTTPException

from gateway import errors
from gateway.web.problems import ProblemResponse, http_error, status_of

DETAIL = "a detail for the caller"

CASES: dict[errors.GatewayError, int] = {
    errors.InvalidRequest(DETAIL): 400,
    errors.UnknownField(DETAIL): 400,
    errors.MalformedBody(DETAIL): 400,
    errors.InvalidField(DETAIL): 400,
    errors.KnowledgeBaseRequired(DETAIL): 400,
    errors.UnsupportedContentType(DETAIL): 415,
    errors.BodyTooLarge(DETAIL): 413,
    errors.MethodNotAllowed(DETAIL): 405,
    errors.IdempotencyMismatch(DETAIL): 422,
    errors.Unauthenticated(DETAIL): 401,
    errors.TokenMissing(DETAIL): 401,
    errors.TokenInvalid(DETAIL): 401,
    errors.TokenExpired(DETAIL): 401,
    errors.Forbidden(DETAIL): 403,
    errors.ScopeMissing(DETAIL): 403,
    errors.PrincipalRevoked(DETAIL): 403,
    errors.NotFound(DETAIL): 404,
    errors.KnowledgeBaseNotFound(DETAIL): 404,
    errors.Conflict(DETAIL): 409,
    errors.ReleaseConflict(DETAIL): 409,
    errors.IllegalTransition(DETAIL): 409,
    errors.StaleFence(DETAIL): 409,
    errors.ApiKeyNameTaken(DETAIL): 409,
    errors.PermissionsChanged(DETAIL): 409,
    errors.Stopped(DETAIL): 409,
    errors.Killed(DETAIL): 409,
    errors.Rejection(DETAIL): 503,
    errors.RateLimited(DETAIL): 429,
    errors.QuotaExceeded(DETAIL): 429,
    errors.Overloaded("generation", retry_after_ms=1500): 503,
    errors.ShuttingDown(DETAIL): 503,
    errors.Unavailable(DETAIL): 503,
    errors.CatalogUnavailable(DETAIL): 503,
    errors.VectorStoreUnavailable(DETAIL): 503,
    errors.ObjectStoreUnavailable(DETAIL): 503,
    errors.StorageFull(DETAIL): 507,
    errors.EmbedderUnavailable(DETAIL): 503,
    errors.RerankerUnavailable(DETAIL): 503,
    errors.UpstreamFailed(DETAIL): 503,
    errors.AuthorizerUnavailable(DETAIL): 503,
    errors.IdentityUnavailable(DETAIL): 503,
    errors.QuotaUnavailable(DETAIL): 503,
    errors.RevocationFeedStale(DETAIL): 503,
    errors.ModerationUnavailable(DETAIL): 503,
    errors.AnswerBlocked(DETAIL): 403,
    errors.ReleaseUnresolved(DETAIL): 503,
    errors.EmbeddingSpaceMismatch(DETAIL): 503,
    errors.NotCalibrated(DETAIL): 503,
    errors.DeadlineExceeded("retrieval"): 504,
    errors.DocumentRejected("blank", DETAIL): 422,
    errors.DocumentUnusable("a.md", DETAIL): 500,  # ends a task; no caller meets it
    errors.BackupDamaged(DETAIL): 500,  # likewise
    errors.RestoreUnconfirmed(DETAIL): 503,
    errors.TooManyAclClasses(DETAIL): 409,
    errors.DocumentTypeRefused(DETAIL): 415,
    errors.GatewayError(DETAIL): 500,
    errors.InvariantViolated(DETAIL): 500,
    errors.ProtocolViolation(DETAIL): 500,
    errors.UnscopedAccess(DETAIL): 500,
    errors.ConfigurationError("reason", DETAIL): 500,
}
by_error = pytest.mark.parametrize(("error", "status"), CASES.items(), ids=lambda c: type(c).__name__)


def test_the_table_knows_every_error_of_the_tree() -> None:
    """A new class has to be given its status here."""
    assert {type(error) for error in CASES} == {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.GatewayError)
    }


@by_error
def test_every_error_has_its_status_and_the_form_of_a_problem(
    error: errors.GatewayError, status: int
) -> None:
    """RFC 9457 with the stable code, never cached; the request's id in body and header."""
    response = ProblemResponse(error, "req_1")
    body = json.loads(bytes(response.body))
    assert (status_of(error), response.status_code, body["status"]) == (status, status, status)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    assert (body["type"], body["title"], body["code"]) == ("about:blank", error.title, error.code)
    assert (body["request_id"], response.headers["x-request-id"]) == ("req_1", "req_1")
    assert ("www-authenticate" in response.headers) is (status == 401)
    assert ("retry-after" in response.headers) is (status in {429, 503})


@by_error
def test_a_detail_is_shown_unless_a_promise_of_the_code_is_broken(
    error: errors.GatewayError, status: int
) -> None:
    """A defect's own words may hold anything."""
    body = json.loads(bytes(ProblemResponse(error).body))
    if isinstance(error, errors.InvariantViolated):
        assert "detail" not in body
        assert DETAIL not in json.dumps(body)
    else:
        assert body["detail"] == error.detail


@pytest.mark.parametrize(
    ("milliseconds", "seconds"), [(None, 1), (0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60), (60_000, 60)]
)
def test_retry_after_is_in_whole_seconds_rounded_up(milliseconds: int | None, seconds: int) -> None:
    """A client that waits that long isn't too early."""
    response = ProblemResponse(errors.RateLimited(retry_after_ms=milliseconds))
    assert response.headers["retry-after"] == str(seconds)


def test_a_spent_budget_is_told_in_the_fields_of_the_draft() -> None:
    """RateLimit-Policy and RateLimit beside Retry-After; one without a window is a number of places."""
    minute = errors.SpentBudget("requests", limit=600, window_s=60, remaining=0, reset_s=2)
    headers = ProblemResponse(errors.RateLimited(retry_after_ms=1500, budget=minute)).headers
    assert headers["retry-after"] == "2"
    assert headers["ratelimit-policy"] == '"requests";q=600;w=60'
    assert headers["ratelimit"] == '"requests";r=0;t=2'
    places = errors.SpentBudget("tenant-calls", limit=8, window_s=0, remaining=0, reset_s=1)
    headers = ProblemResponse(errors.QuotaExceeded(budget=places)).headers
    assert headers["ratelimit-policy"] == '"tenant-calls";q=8;qu="concurrent-requests"'
    assert "ratelimit" not in ProblemResponse(errors.QuotaExceeded()).headers


@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [(400, 400, "malformed_body"), (404, 404, "not_found"), (405, 405, "method_not_allowed")],
)
async def test_the_frameworks_own_errors_take_the_same_form(status: int, expected: int, code: str) -> None:
    """Headers such as Allow stay; the framework's words don't."""
    folder = tempfile.gettempdir()
    response = await http_error(
        None,  # type: ignore[arg-type]  # the handler doesn't look at the request
        HTTPException(status, f"no file in {folder}", headers={"Allow": "GET"}),
    )
    assert (response.status_code, json.loads(bytes(response.body))["code"]) == (expected, code)
    assert response.headers["allow"] == "GET"
    assert folder.encode() not in bytes(response.body)
