"""Plots: a few lines over shares, as SVG text and without a library."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 196, 36, 52
_COLOURS = ("#1b6ca8", "#c2571a", "#3a7d44", "#8a4f9e", "#8c6d1f", "#555555")
_TICKS = 5

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """Points from left to right; ``marked`` are drawn as dots, for what is in force."""

    name: str
    points: Sequence[Point]
    marked: Sequence[Point] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """Axes from 0 to ``x_most`` and ``y_most``; ``y_least`` where the lower part would be empty."""

    title: str
    x_name: str
    y_name: str
    lines: Sequence[Line]
    x_most: float = 1.0
    y_most: float = 1.0
    y_least: float = 0.0

    def svg(self) -> str:
        """The same text for the same numbers."""
        parts = [*self._frame()]
        for place, line in enumerate(self.lines):
            parts += self._drawn(line, _COLOURS[place % len(_COLOURS)], _TOP + 14 + 18 * place)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'font-family="sans-serif" font-size="12" role="img"><title>{html.escape(self.title)}</title>'
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
        )
        return "\n".join([head, *parts, "</svg>", ""])

    def _frame(self) -> list[str]:
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        parts = [
            _text(_LEFT, 20, self.title, weight="bold"),
            _text((_LEFT + right) / 2, _HEIGHT - 12, self.x_name, anchor="middle"),
            f'<text transform="translate(16 {(_TOP + bottom) / 2:.0f}) rotate(-90)" '
            f'text-anchor="middle">{html.escape(self.y_name)}</text>',
        ]
        for tick in range(_TICKS + 1):
            x_value = self.x_most * tick / _TICKS
            y_value = self.y_least + (self.y_most - self.y_least) * tick / _TICKS
            x, y = self._at((x_value, y_value))
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
            parts.append(_text(_LEFT - 8, y + 4, f"{y_value:.3g}", anchor="end"))
            parts.append(_text(x, bottom + 18, f"{x_value:.3g}", anchor="middle"))
        parts.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#333"/>')
        return parts

    def _drawn(self, line: Line, colour: str, legend_y: float) -> list[str]:
        inside = [p for p in line.points if p[0] <= self.x_most and self.y_least <= p[1] <= self.y_most]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self._at, inside))
        parts = (
            [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'] if path else []
        )
        for point in line.marked:
            x, y = self._at((min(point[0], self.x_most), min(max(point[1], self.y_least), self.y_most)))
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>')
        x = _WIDTH - _RIGHT + 14
        parts.append(f'<path d="M{x} {legend_y - 4}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(x + 24, legend_y, line.name))
        return parts

    def _at(self, point: Point) -> Point:
        x_share = point[0] / self.x_most
        y_share = (point[1] - self.y_least) / (self.y_most - self.y_least)
        across, up = _WIDTH - _RIGHT - _LEFT, _HEIGHT - _BOTTOM - _TOP
        return _LEFT + across * x_share, _HEIGHT - _BOTTOM - up * y_share


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{html.escape(text)}</text>"
    )
