"""HTTP: pure ASGI middleware, problem documents, server-sent events, routes."""
