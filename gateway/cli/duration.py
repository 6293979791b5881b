"""Durations as people type them: 30m, 1h, 7d."""

import typer

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str, longest_days: int) -> int:
    """From a second to ``longest_days``; raises typer.BadParameter."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isascii() or not number.isdigit() or len(number) > len("999999999"):
        raise typer.BadParameter("a time to live looks like 30m, 1h or 7d")
    found = int(number) * _UNITS[unit]
    if not 0 < found <= longest_days * 86_400:
        raise typer.BadParameter(f"a time to live is a second at least and {longest_days} days at most")
    return found
