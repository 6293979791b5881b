"""Files as the usual programs make them, through the whole build in a child process, and hostile ones."""

import asyncio
import io
import sys
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import docx
import pytest

from gateway.adapters.children.build_child import ChildParser
from gateway.errors import DocumentRejected
from gateway.ingest.building import build_document
from tests.harness.missing import program
from tests.unit import pdf_samples
from tests.unit.office_samples import saved
from tests.unit.test_parsing_pdf import minimal

PAGE = """<html><head><meta charset="utf-8"><title>Leave rules</title>
<style>table {border-collapse: collapse} td, th {padding: 4px 10px; text-align: left}
.ruled td, .ruled th {border: 1px solid #444}</style></head>
<body><h1>Leave rules</h1>
<p>These rules hold for everybody. They were agreed with the works council, begin in January and are reviewed
each year by the people team together with finance.</p>
<h2>1 Annual leave</h2>
<ul><li>Part-time staff: pro rata<ul><li>rounded up to half days</li></ul></li><li>Interns: 10 days</li></ul>
<h2>2 Approvals</h2>
<table class="ruled"><thead><tr><th>Days</th><th>Approver</th></tr></thead>
<tbody><tr><td>1-3</td><td>Team lead</td></tr><tr><td>4+</td><td>Head of department</td></tr></tbody></table>
<h3>Holidays</h3>
<table><tr><th>Region</th><th>Holiday</th><th>Date</th></tr>
<tr><td>North</td><td>Founders day</td><td>1 May</td></tr>
<tr><td>South</td><td>Harvest day, when all offices are closed</td><td>3 October</td></tr>
<tr><td>West</td><td>River day</td><td>9 July</td></tr></table>
<h2>常见问题</h2><h3>如何申请年假？</h3>
<p>请在人事系统中提交申请，并由直属经理在三个工作日内审批。审批通过后系统会自动通知员工本人，同时抄送人事部门备案；如果超过三个工作日没有审批，系统会提醒经理。</p>
<h2>Program</h2><pre>def leave(days):
    return days &gt; 10</pre></body></html>"""

BROWSER_S = 60


async def printed(folder: Path) -> bytes:
    """The page as Chromium prints it."""
    browser = program("chromium", "apt-get install chromium")
    (folder / "page.html").write_text(PAGE, encoding="utf-8")
    target = folder / "page.pdf"
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-pdf-header-footer",
        f"--user-data-dir={folder}",
    ]
    command = [browser, *flags, f"--print-to-pdf={target}", str(folder / "page.html")]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    async with asyncio.timeout(BROWSER_S):
        assert await process.wait() == 0
    return target.read_bytes()


async def test_a_page_that_a_browser_has_printed(tmp_path: Path) -> None:
    """Headings, drawn bullets, tables with and without lines, Chinese and code come back."""
    built = build_document("page.pdf", "application/pdf", await printed(tmp_path))
    said = {(passage.section, passage.content) for passage in built.passages}
    assert built.title == "Leave rules"
    assert (
        "1 Annual leave",
        "- Part-time staff: pro rata\n  - rounded up to half days\n- Interns: 10 days",
    ) in said
    ruled = "| Days | Approver |\n| --- | --- |\n| 1-3 | Team lead |\n| 4+ | Head of department |"
    assert ("2 Approvals", ruled) in said
    assert any(
        s == "2 Approvals > Holidays"
        and "| South | Harvest day, when all offices are closed | 3 October |" in c
        for s, c in said
    )
    assert any(
        c.startswith("如何申请年假？\n请在人事系统中提交申请，并由直属经理")
        and c.endswith("系统会提醒经理。")
        for _, c in said
    )
    assert any("```\ndef leave(days):\n    return days > 10\n```" in c for _, c in said)
    assert {passage.page for passage in built.passages} <= {1, 2}


@pytest.fixture
async def parser() -> AsyncIterator[ChildParser]:
    child = ChildParser(cap_s=60, max_bytes=16_000_000, memory_mb=200)
    yield child
    await child.aclose()


def inflating_pdf() -> bytes:
    """One page whose content is some hundred megabytes of blanks."""
    packer = zlib.compressobj(1)
    blanks = bytes(1024**2).replace(b"\0", b" ")
    return minimal(b"".join([*(packer.compress(blanks) for _ in range(300)), packer.flush()]))


def large_tree() -> bytes:
    """A document within the limits of its archive whose XML becomes a tree of more memory than there is."""
    content = saved(docx.Document())
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as package,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in package.namelist():
            part = package.read(name)
            if name == "word/document.xml":
                runs = b"".join(b"<w:r><w:t>%d</w:t></w:r>" % n for n in range(400_000))
                part = part.replace(b"<w:sectPr", b"<w:p>" + runs + b"</w:p><w:sectPr", 1)
            target.writestr(name, part)
    return out.getvalue()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
@pytest.mark.parametrize(("name", "hostile"), [("a.pdf", inflating_pdf), ("a.docx", large_tree)])
async def test_a_file_that_needs_too_much_memory_hurts_only_its_child(
    parser: ChildParser, name: str, hostile: Callable[[], bytes]
) -> None:
    """It is refused, and the next document is read."""
    with pytest.raises(DocumentRejected) as caught:
        await parser.build(name, "", hostile())
    assert caught.value.reason == "too_complex"
    content = pdf_samples.flowing(pdf_samples.heading("Fine"), pdf_samples.prose("Hello there."))
    assert (await parser.build("b.pdf", "", content)).passages[0].content == "Hello there."
