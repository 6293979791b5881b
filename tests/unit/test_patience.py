"""How long a command goes on asking: what it repeats, what it doesn't, and when it gives up."""

from collections.abc import Callable

import pytest

from gateway.cli.patience import Interrupted, Patience
from gateway.client import ApiError, ServerUnreachable

AWAY = ServerUnreachable("nobody answers")


def problem(status: int, retry_after_ms: int | None = None) -> ApiError:
    return ApiError(status, f"code_{status}", "", "", retry_after_ms)


def failing(*errors: Exception) -> Callable[[], str]:
    """A request that fails with each of them in turn, and succeeds after that."""
    left = list(errors)

    def request() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return request


@pytest.mark.parametrize("error", [AWAY, *map(problem, (429, 502, 503, 504, 507))], ids=repr)
def test_what_may_pass_is_asked_again(error: Exception) -> None:
    """And it is said what is waited for."""
    said: list[str] = []
    patience = Patience(30.0, lambda code, _: said.append(code))
    assert patience.call(failing(error)) == "done"
    assert said == [error.problem_code if isinstance(error, ApiError) else "server_unreachable"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_what_cannot_pass_is_not_asked_again(status: int) -> None:
    """It is raised as it came."""
    said: list[str] = []
    with pytest.raises(ApiError) as raised:
        Patience(30.0, lambda code, _: said.append(code)).call(failing(problem(status)))
    assert (raised.value.status, said) == (status, [])


def test_the_server_says_how_long_to_wait() -> None:
    """Its Retry-After is a least time; one beyond the patience isn't waited for."""
    waits: list[float] = []
    patience = Patience(30.0, lambda _, seconds: waits.append(seconds))
    assert patience.call(failing(problem(503, 1000))) == "done"
    assert waits == [1.0]
    with pytest.raises(ApiError):
        patience.call(failing(problem(503, 31_000)))
    assert waits == [1.0]


def test_without_patience_nothing_is_repeated() -> None:
    """Zero seconds is one attempt."""
    with pytest.raises(ServerUnreachable):
        Patience(0.0, lambda *_: None).call(failing(AWAY))


def test_nothing_is_repeated_once_it_was_stopped() -> None:
    """Whoever waits leaves at once."""
    patience = Patience(600.0, lambda *_: patience.stopped.set())
    with pytest.raises(Interrupted):
        patience.call(failing(problem(503, 500_000)))
