"""PDF files made by reportlab for the tests of the PDF parser."""

import io
from collections.abc import Callable, Sequence
from typing import Any

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    PageBreak,
    PageTemplate,
    Paragraph,
    SimpleDocTemplate,
    Table,
    TableStyle,
)

STYLES = getSampleStyleSheet()
GRID: tuple[Any, ...] = ("GRID", (0, 0), (-1, -1), 0.5, colors.black)
CHINESE = "STSong-Light"


def heading(text: str, level: int = 1) -> Flowable:
    return Paragraph(text, STYLES["Title"] if level == 0 else STYLES[f"Heading{level}"])


def prose(text: str) -> Flowable:
    return Paragraph(text, STYLES["BodyText"])


def table(
    rows: Sequence[Sequence[str]], *extra: tuple[Any, ...], ruled: bool = True, **kwargs: Any
) -> Flowable:
    made = Table(rows, repeatRows=kwargs.pop("repeat_rows", 0), **kwargs)
    made.setStyle(TableStyle([*([GRID] if ruled else []), *extra]))
    return made


def page_break() -> Flowable:
    return PageBreak()


def flowing(
    *flowables: Flowable,
    decorate: Callable[[Canvas, int], None] | None = None,
    password: str = "",
    title: str = "",
) -> bytes:
    """A4 pages; ``decorate`` draws on each page, whose number it gets."""
    out = io.BytesIO()

    def on_page(canvas: Canvas, document: BaseDocTemplate) -> None:
        if decorate is not None:
            decorate(canvas, document.page)

    encrypt = StandardEncryption(password, ownerPassword="owner") if password else None
    document = SimpleDocTemplate(out, pagesize=A4, encrypt=encrypt, title=title or None)
    document.build(list(flowables), onFirstPage=on_page, onLaterPages=on_page)
    return out.getvalue()


def two_columns(*flowables: Flowable) -> bytes:
    """A line across the page, and below it two columns."""
    out = io.BytesIO()
    document = BaseDocTemplate(out, pagesize=A4)
    frames = [Frame(60, 60, 225, 640), Frame(310, 60, 225, 640)]

    def across(canvas: Canvas, _: BaseDocTemplate) -> None:
        canvas.setFont("Helvetica-Bold", 18)
        canvas.drawString(60, 760, "A report that has a headline across both of its columns")

    document.addPageTemplates([PageTemplate(frames=frames, onPage=across)])
    document.build(list(flowables))
    return out.getvalue()


def drawn(*pages: Callable[[Canvas], None], encrypt: StandardEncryption | None = None) -> bytes:
    """Pages that are drawn by hand."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4, encrypt=encrypt)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def lines(
    canvas: Canvas, texts: Sequence[str], *, x: float = 72, y: float = 760, font: str = "Helvetica"
) -> None:
    """One line under the other, 14 points apart; a text's leading spaces stay."""
    canvas.setFont(font, 11)
    for text in texts:
        canvas.drawString(x, y, text)
        y -= 14


def chinese_font() -> str:
    pdfmetrics.registerFont(UnicodeCIDFont(CHINESE))
    return CHINESE


def picture(canvas: Canvas) -> None:
    """A scan: one picture over the whole page."""
    from PIL import Image

    canvas.drawImage(ImageReader(Image.new("L", (60, 80), 200)), 0, 0, *A4)
