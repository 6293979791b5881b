"""Errors as HTTP: the one place where an error class becomes a status (RFC 9457 problem+json)."""

from collections.abc import Mapping

import orjson
from starlette.requests import Request
from starlette.responses import Response

from gateway import errors

#: most specific class first; the first match decides
_STATUS: tuple[tuple[type[errors.GatewayError], int], ...] = (
    (errors.BodyTooLarge, 413),
    (errors.UnsupportedContentType, 415),
    (errors.MethodNotAllowed, 405),
    (errors.IdempotencyMismatch, 422),
    (errors.InvalidRequest, 400),
    (errors.DocumentRejected, 422),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.AnswerBlocked, 403),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.RateLimited, 429),
    (errors.QuotaExceeded, 429),
    (errors.Rejection, 503),
    (errors.StorageFull, 507),
    (errors.Unavailable, 503),
    (errors.DeadlineExceeded, 504),
)
_DEFAULT_RETRY_MS = 1000
_OF_STARLETTE: Mapping[int, type[errors.GatewayError]] = {
    400: errors.MalformedBody,
    405: errors.MethodNotAllowed,
}


def status_of(error: errors.GatewayError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


class ProblemResponse(Response):
    """application/problem+json with a stable ``code``; 401 names the scheme, 429/503 a Retry-After, and a
    rejection the budget that is spent.
    """

    media_type = "application/problem+json"

    def __init__(self, error: errors.GatewayError, request_id: str | None = None) -> None:
        status = status_of(error)
        hidden = isinstance(error, errors.InvariantViolated)
        body: dict[str, object] = {
            "type": "about:blank",
            "title": error.title,
            "status": status,
            "code": error.code,
        }
        if error.detail and not hidden:
            body["detail"] = error.detail
        if isinstance(error, errors.KnowledgeBaseRequired):
            body["knowledge_bases"] = error.permitted
        if request_id:
            body["request_id"] = request_id
        super().__init__(orjson.dumps(body), status, _headers(error, status, request_id))


def _headers(error: errors.GatewayError, status: int, request_id: str | None) -> Mapping[str, str]:
    headers = {"Cache-Control": "no-store"}
    if request_id:
        headers["X-Request-Id"] = request_id
    if status == 401:
        headers["WWW-Authenticate"] = f'Bearer error="{error.code}"'
    if status in {429, 503}:
        milliseconds = error.retry_after_ms or _DEFAULT_RETRY_MS
        headers["Retry-After"] = str(max(1, -(-milliseconds // 1000)))
    if isinstance(error, errors.Rejection) and error.budget is not None:
        headers |= _rate_limits(error.budget)
    return headers


def _rate_limits(budget: errors.SpentBudget) -> Mapping[str, str]:
    """RateLimit header fields for HTTP, draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4.

    A budget without a window is one of places.
    """
    over = f"w={budget.window_s}" if budget.window_s else 'qu="concurrent-requests"'
    return {
        "RateLimit-Policy": f'"{budget.policy}";q={budget.limit};{over}',
        "RateLimit": f'"{budget.policy}";r={budget.remaining};t={budget.reset_s}',
    }


async def gateway_error(_: Request, error: Exception) -> Response:
    """Starlette exception handler for GatewayError."""
    return ProblemResponse(error if isinstance(error, errors.GatewayError) else errors.GatewayError())


async def http_error(_: Request, error: Exception) -> Response:
    """Starlette's own 400 (a multipart form it can't read), 404 and 405, in the same form."""
    kind = _OF_STARLETTE.get(getattr(error, "status_code", 404), errors.NotFound)
    problem = ProblemResponse(kind())
    problem.headers.update(getattr(error, "headers", None) or {})
    return problem
