"""Moments as the terminal shows them: to the minute, in UTC."""

from datetime import UTC, datetime


def moment(at: float | None) -> str:
    """``at`` is in seconds since the epoch."""
    return "-" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}Z"
