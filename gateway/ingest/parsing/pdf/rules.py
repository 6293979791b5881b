"""PDF rules: the level and upright lines that one page draws, and how much of it pictures cover."""

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

import pypdfium2
import pypdfium2.raw as pdfium

from gateway.ingest.parsing.pdf.words import turned_point

#: what a page may hold before it counts as a drawing whose lines are no table's
_MAX_RULES = 4_000
_MAX_DOTS = 300
_MAX_OBJECTS = 50_000
_MAX_SEGMENTS = 400
_MAX_FORM_DEPTH = 4
#: in points: the shortest rule, and the sizes between which a shape may be a bullet
_LONG = 4.0
_DOT = (1.5, 7.0)

_Point = tuple[float, float]
_Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: _Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


class Rule(NamedTuple):
    """A line at y = ``at`` from x = ``start`` to ``stop`` if ``level``, else at x = ``at``; in points."""

    level: bool
    at: float
    start: float
    stop: float


class PageDrawing(NamedTuple):
    """``dots`` are the middles of drawn bullets; ``pictured`` is all pictures' area in square points."""

    rules: list[Rule]
    dots: list[tuple[float, float]]
    pictured: float


def read_rules(page: pypdfium2.PdfPage, quarter: int) -> PageDrawing:
    """Turned by ``quarter`` as the page's text is. A page with very many lines has none."""
    rules: list[Rule] = []
    dots: list[_Point] = []
    pictured = 0.0
    for kind, found, matrix in _objects(page.raw):
        if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            pictured += abs(matrix[0] * matrix[3] - matrix[1] * matrix[2])
        elif len(rules) <= _MAX_RULES and len(dots) <= _MAX_DOTS:
            stretches = [
                (turned_point(*one, quarter), turned_point(*other, quarter))
                for one, other in _stretches(found, matrix)
            ]
            dots.extend(_dot(stretches))
            for one, other in stretches:
                rules.extend(_rule(one, other))
    if len(rules) > _MAX_RULES or len(dots) > _MAX_DOTS:
        return PageDrawing([], [], pictured)
    return PageDrawing(rules, dots, pictured)


def _objects(page: pdfium.FPDF_PAGE) -> Iterator[tuple[int, pdfium.FPDF_PAGEOBJECT, _Matrix]]:
    """Paths and pictures with their place on the page, those inside forms included."""
    left = _MAX_OBJECTS
    stack: list[tuple[Iterator[pdfium.FPDF_PAGEOBJECT], _Matrix]] = [(_children(page, False), _IDENTITY)]
    while stack and left:
        children, outer = stack[-1]
        found = next(children, None)
        if found is None:
            stack.pop()
            continue
        left -= 1
        kind = pdfium.FPDFPageObj_GetType(found)
        if kind in (pdfium.FPDF_PAGEOBJ_PATH, pdfium.FPDF_PAGEOBJ_IMAGE):
            yield kind, found, _times(_matrix(found), outer)
        elif kind == pdfium.FPDF_PAGEOBJ_FORM and len(stack) <= _MAX_FORM_DEPTH:
            stack.append((_children(found, True), _times(_matrix(found), outer)))


def _children(parent: pdfium.FPDF_PAGE, is_form: bool) -> Iterator[pdfium.FPDF_PAGEOBJECT]:
    if is_form:
        count, get = pdfium.FPDFFormObj_CountObjects, pdfium.FPDFFormObj_GetObject
    else:
        count, get = pdfium.FPDFPage_CountObjects, pdfium.FPDFPage_GetObject
    return (get(parent, at) for at in range(count(parent)))


def _matrix(found: pdfium.FPDF_PAGEOBJECT) -> _Matrix:
    m = pdfium.FS_MATRIX()
    pdfium.FPDFPageObj_GetMatrix(found, m)
    return (m.a, m.b, m.c, m.d, m.e, m.f)


def _times(inner: _Matrix, outer: _Matrix) -> _Matrix:
    a, b, c, d, e, f = inner
    oa, ob, oc, od, oe, of = outer
    return (
        a * oa + b * oc,
        a * ob + b * od,
        c * oa + d * oc,
        c * ob + d * od,
        e * oa + f * oc + oe,
        e * ob + f * od + of,
    )


def _stretches(path: pdfium.FPDF_PAGEOBJECT, matrix: _Matrix) -> list[tuple[_Point, _Point]]:
    """From point to point, y downwards; curves as if they were straight."""
    count = pdfium.FPDFPath_CountSegments(path)
    if not 2 <= count <= _MAX_SEGMENTS:
        return []
    a, b, c, d, e, f = matrix
    x, y = ctypes.c_float(), ctypes.c_float()
    start = last = (0.0, 0.0)
    stretches: list[tuple[_Point, _Point]] = []
    for at in range(count):
        segment = pdfium.FPDFPath_GetPathSegment(path, at)
        pdfium.FPDFPathSegment_GetPoint(segment, x, y)
        point = (a * x.value + c * y.value + e, -(b * x.value + d * y.value + f))
        if pdfium.FPDFPathSegment_GetType(segment) == pdfium.FPDF_SEGMENT_MOVETO:
            start = point
        else:
            stretches.append((last, point))
        last = point
        if pdfium.FPDFPathSegment_GetClose(segment):
            stretches.append((last, start))
            last = start
    return stretches


def _rule(one: _Point, other: _Point) -> Iterator[Rule]:
    (x0, y0), (x1, y1) = one, other
    if abs(y0 - y1) <= 1 and abs(x0 - x1) > _LONG:
        yield Rule(True, (y0 + y1) / 2, min(x0, x1), max(x0, x1))
    elif abs(x0 - x1) <= 1 and abs(y0 - y1) > _LONG:
        yield Rule(False, (x0 + x1) / 2, min(y0, y1), max(y0, y1))


def _dot(stretches: list[tuple[_Point, _Point]]) -> Iterator[_Point]:
    """The middle of a small round or square shape."""
    xs = [x for stretch in stretches for x, _ in stretch]
    ys = [y for stretch in stretches for _, y in stretch]
    if len(xs) > 6 and all(_DOT[0] < max(at) - min(at) < _DOT[1] for at in (xs, ys)):
        yield (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2
