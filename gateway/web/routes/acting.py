"""Acts as they come over HTTP: who asks for what, under which Idempotency-Key."""

import hashlib
from collections.abc import Mapping

import orjson
from starlette.requests import Request

from gateway.access.act import Act
from gateway.access.principal import Principal
from gateway.answer.question import checked_text
from gateway.errors import InvalidField

_KEY_MAX_CHARS = 200


def idempotency_key(request: Request) -> str | None:
    """Raises InvalidField for two keys, or one that isn't good text."""
    given = request.headers.getlist("idempotency-key")
    if len(given) > 1:
        raise InvalidField("Idempotency-Key is given twice")
    return checked_text(given[0], "Idempotency-Key", _KEY_MAX_CHARS) if given else None


def act_of(
    request: Request, principal: Principal, action: str, body: Mapping[str, object], **details: object
) -> Act:
    """``body`` as it was sent; the order of its fields doesn't count."""
    asked = [request.method, request.url.path, body]
    return Act(
        tenant=principal.tenant,
        subject=principal.subject,
        action=action,
        request_hash=hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest(),
        key=idempotency_key(request),
        details=details,
    )
