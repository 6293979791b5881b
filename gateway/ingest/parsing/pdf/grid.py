"""PDF grid: the cells that ruled lines form; pure geometry."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gateway.ingest.parsing.pdf.rules import Rule

#: lines nearer than this are one line, and ends nearer than this meet; in points
_NEAR = 3.0
_MAX_COLUMNS = 100
_MAX_ROWS = 1_000

Cell = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Grid:
    """``xs`` and ``ys`` are where its lines stand; ``owner[row][column]`` is the cell's upper left place,
    so that cells which were merged share one.
    """

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    owner: tuple[tuple[Cell, ...], ...]

    @property
    def columns(self) -> int:
        return len(self.xs) - 1

    def cell_at(self, x: float, y: float) -> Cell | None:
        """(row, column) of the cell that holds a point."""
        column, row = bisect_right(self.xs, x) - 1, bisect_right(self.ys, y) - 1
        if 0 <= row < len(self.ys) - 1 and 0 <= column < self.columns:
            return self.owner[row][column]
        return None


def find_grids(rules: Sequence[Rule]) -> list[Grid]:
    """Every group of lines that meet and form at least two columns and two rows, from the top."""
    grids = [grid for group in _meeting(_merged(rules)) if (grid := _grid(group)) is not None]
    return sorted(grids, key=lambda grid: (grid.ys[0], grid.xs[0]))


def _merged(rules: Sequence[Rule]) -> list[Rule]:
    """Lines that lie on each other or follow each other become one."""
    merged: list[Rule] = []
    for level in (True, False):
        for line in _near_lines(sorted(rule for rule in rules if rule.level is level)):
            at = sum(rule.at for rule in line) / len(line)
            start, stop = line[0].start, line[0].stop
            for rule in sorted(line, key=lambda rule: rule.start):
                if rule.start > stop + _NEAR:
                    merged.append(Rule(level, at, start, stop))
                    start, stop = rule.start, rule.stop
                else:
                    start, stop = min(start, rule.start), max(stop, rule.stop)
            merged.append(Rule(level, at, start, stop))
    return merged


def _near_lines(rules: Sequence[Rule]) -> Iterator[list[Rule]]:
    held: list[Rule] = []
    for rule in rules:
        if held and rule.at - held[0].at > _NEAR:
            yield held
            held = []
        held.append(rule)
    if held:
        yield held


def _meeting(rules: Sequence[Rule]) -> Iterator[list[Rule]]:
    """Groups of lines that cross or touch, directly or through others."""
    parent = list(range(len(rules)))

    def root(n: int) -> int:
        while parent[n] != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    upright = [(n, rule) for n, rule in enumerate(rules) if not rule.level]
    for n, rule in enumerate(rules):
        if rule.level:
            for m, other in upright:
                if _touch(rule, other):
                    parent[root(n)] = root(m)
    groups: dict[int, list[Rule]] = {}
    for n, rule in enumerate(rules):
        groups.setdefault(root(n), []).append(rule)
    yield from groups.values()


def _touch(level: Rule, upright: Rule) -> bool:
    return (
        level.start - _NEAR <= upright.at <= level.stop + _NEAR
        and upright.start - _NEAR <= level.at <= upright.stop + _NEAR
    )


def _grid(rules: Sequence[Rule]) -> Grid | None:
    levels = [rule for rule in rules if rule.level]
    uprights = [rule for rule in rules if not rule.level]
    if not levels or not uprights:
        return None
    xs, ys = _places(uprights, levels), _places(levels, uprights)
    if not 3 <= len(xs) <= _MAX_COLUMNS + 1 or not 3 <= len(ys) <= _MAX_ROWS + 1:
        return None
    return Grid(xs, ys, _owners(xs, ys, levels, uprights))


def _places(rules: Sequence[Rule], across: Sequence[Rule]) -> tuple[float, ...]:
    """Where the lines stand; outer lines that aren't drawn stand at the ends of those across."""
    places = sorted({rule.at for rule in rules})
    first, last = min(rule.start for rule in across), max(rule.stop for rule in across)
    if first < places[0] - 2 * _NEAR:
        places.insert(0, first)
    if last > places[-1] + 2 * _NEAR:
        places.append(last)
    distinct = [places[0]]
    distinct.extend(place for place in places if place - distinct[-1] > _NEAR)
    return tuple(distinct)


def _owners(
    xs: Sequence[float], ys: Sequence[float], levels: Sequence[Rule], uprights: Sequence[Rule]
) -> tuple[tuple[Cell, ...], ...]:
    """Joins neighbouring places that no line parts; a cell takes the place of its upper left corner."""
    walls, floors = _parted(xs, ys, uprights), _parted(ys, xs, levels)
    owner: list[list[Cell]] = []
    for row in range(len(ys) - 1):
        line: list[Cell] = []
        for column in range(len(xs) - 1):
            if row and (row, column) not in floors:
                line.append(owner[row - 1][column])
            elif column and (column, row) not in walls and line[-1][0] == row:
                line.append(line[-1])
            else:
                line.append((row, column))
        owner.append(line)
    return tuple(tuple(line) for line in owner)


def _parted(places: Sequence[float], across: Sequence[float], rules: Sequence[Rule]) -> set[tuple[int, int]]:
    """(n, m): a line stands at ``places[n]`` along the middle between ``across[m]`` and the next."""
    parted: set[tuple[int, int]] = set()
    middles = [(one + other) / 2 for one, other in pairwise(across)]
    for rule in rules:
        near = bisect_right(places, rule.at + _NEAR) - 1
        if near >= 0 and abs(places[near] - rule.at) <= 2 * _NEAR:
            parted.update((near, m) for m, middle in enumerate(middles) if rule.start <= middle <= rule.stop)
    return parted
