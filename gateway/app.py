"""The ASGI application: routes, middleware, error handlers, and a lifespan that opens the services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from gateway.bootstrap.opening import open_services
from gateway.errors import GatewayError
from gateway.settings import Settings
from gateway.web.middleware import SafetyHeaders
from gateway.web.problems import gateway_error, http_error
from gateway.web.routing import routes
from gateway.web.services import Services


def create_app(settings: Settings, services: Services | None = None) -> Starlette:
    """An app over the given services, or over its own, opened and closed by its lifespan."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if services is not None:
            app.state.services = services
            yield
            return
        async with open_services(settings) as opened:
            app.state.services = opened
            yield

    app = Starlette(
        routes=routes(),
        middleware=[Middleware(SafetyHeaders)],
        exception_handlers={
            GatewayError: gateway_error,
            HTTPException: http_error,
            Exception: gateway_error,  # a defect: told as internal_error here, raised on for the log
        },
        lifespan=lifespan,
    )
    # A redirect would name a host that the caller chose.
    app.router.redirect_slashes = False
    return app
