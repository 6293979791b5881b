"""How an import's time is spent: parsing and embedding themselves against all the rest.

``python -m loadtest.importing [--pages 2000 --json F]``. Writes pages, imports them twice with the command
line into a gateway of its own, and does the parsing and the embedding of the same pages once more without
one. Every figure that is compared comes from the same run. Processor seconds are told as well, by process:
on a machine that others use, they say more than the clock.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.ingest.building import build_document
from gateway.retrieval.chunk import embedded_text
from gateway.samples import load_samples
from loadtest.driver_record import FOLDER, Frame, load_line, write
from tests.harness.process import GatewayProcess, environment, gateway_process

FILE = FOLDER / "importing.json"
#: of an import's time, parsing and embedding at least; of the first import's time, the second at most
SHARE_AIM, AGAIN_AIM = 0.70, 0.10

_BATCH = 64
_KNOWLEDGE_BASE = "pages"
#: what a child of the server does -> a word of its command
_CHILDREN = {"parsing": "build_loop", "embedding": "embedding_loop", "vectors": "lite_server"}


def options(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--page-bytes", type=int, default=6000)
    parser.add_argument("--jobs", type=int, default=4, help="uploads at a time")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--json", type=Path, default=FILE, help="where the figures go")
    return parser.parse_args(given)


def write_pages(folder: Path, chosen: argparse.Namespace) -> None:
    for name, text in pages(chosen.pages, chosen.page_bytes, chosen.seed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def pages(count: int, page_bytes: int, seed: int) -> Iterator[tuple[str, str]]:
    """``(name, Markdown)``: sections, lists and tables of the samples' words; no two paragraphs are alike."""
    words = sorted({w for d in load_samples().documents for w in d.read().decode().split() if w.isalpha()})
    chance = random.Random(seed)
    for number in range(count):
        parts = [f"# {_some(words, chance, 4).capitalize()} {number}\n"]
        while sum(map(len, parts)) < page_bytes:
            parts += _section(words, chance)
        yield f"part-{number // 100:02}/page-{number:04}.md", "\n".join(parts)


def _section(words: Sequence[str], chance: random.Random) -> list[str]:
    rows = [f"| {_some(words, chance, 2)} | {chance.randint(1, 9999)} |" for _ in range(3)]
    return [
        f"## {_some(words, chance, 3).capitalize()}\n",
        f"{_sentence(words, chance)} {_sentence(words, chance)} {_sentence(words, chance)}\n",
        *(f"- {_sentence(words, chance)}" for _ in range(4)),
        "",
        "| what | how many |",
        "|---|---|",
        *rows,
        "",
        f"{_sentence(words, chance)} {_sentence(words, chance)}\n",
    ]


def _sentence(words: Sequence[str], chance: random.Random) -> str:
    return f"{_some(words, chance, chance.randint(8, 20)).capitalize()}."


def _some(words: Sequence[str], chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(words, k=count))


def alone(folder: Path) -> dict[str, float]:
    """Seconds of the same work without a gateway: parsing with chunking, and embedding, one by one."""
    embedder = BundledEmbedder.load_now()
    embedder.vectors(["a first text pays for what is made once"])
    parsing = embedding = 0.0
    chunks = 0
    for path in sorted(folder.rglob("*.md")):
        content = path.read_bytes()
        begun = time.perf_counter()
        built = build_document(path.name, "text/markdown", content)
        parsed = time.perf_counter()
        texts = [embedded_text(built.title, p.section, p.content) for p in built.passages]
        for start in range(0, len(texts), _BATCH):
            embedder.vectors(texts[start : start + _BATCH])
        embedding += time.perf_counter() - parsed
        parsing += parsed - begun
        chunks += len(texts)
    return {"parsing_s": parsing, "embedding_s": embedding, "chunks": chunks}


async def timed(gateway: GatewayProcess, *command: str) -> float:
    """Seconds of one command, its own start included."""
    env = {"GATEWAY_URL": gateway.base_url, "GATEWAY_TOKEN": gateway.token("ingest", "release", "ask")}
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from gateway.cli import main; main()", *command),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment(env),
    )
    _, errors = await process.communicate()
    took = time.perf_counter() - begun
    assert process.returncode == 0, errors.decode()
    return took


async def measured(folder: Path, home: Path, jobs: int) -> dict[str, Any]:
    """Seconds of each step against one gateway, embedded parts."""
    command = ("import", str(folder), "--kb", _KNOWLEDGE_BASE, "--allow", "group:staff", "--jobs", str(jobs))
    async with gateway_process(home, env={"GATEWAY_LOG_LEVEL": "warning"}) as gateway:
        one = home / "one.md"
        one.write_text("# One\n\nThe first page pays for what is started once.\n")
        await timed(gateway, "import", str(one), "--kb", "warm", "--allow", "group:staff", "--activate")
        before = processor_seconds(gateway)
        first = await timed(gateway, *command)
        used = {name: s - before.get(name, 0.0) for name, s in processor_seconds(gateway).items()}
        again = await timed(gateway, *command)
        release = await timed(gateway, "releases", "build", "--kb", _KNOWLEDGE_BASE)
        unchanged_release = await timed(gateway, *command, "--activate")
        assert await gateway.stop() == 0
    return {
        "first_s": first,
        "again_s": again,
        "release_s": release,
        "again_and_release_s": unchanged_release,
        "processor_s": used,
    }


def processor_seconds(gateway: GatewayProcess) -> dict[str, float]:
    """Of the server and of each of its children, by what they do."""
    used = {"serve": _processor(gateway.pid)}
    for pid in gateway.children():
        words = " ".join(psutil.Process(pid).cmdline())
        name = next((name for name, word in _CHILDREN.items() if word in words), "other")
        used[name] = used.get(name, 0.0) + _processor(pid)
    return used


def _processor(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def report(steps: dict[str, Any], work: dict[str, float], chosen: argparse.Namespace) -> dict[str, Any]:
    own = work["parsing_s"] + work["embedding_s"]
    return {
        "pages": chosen.pages,
        "page_bytes": chosen.page_bytes,
        **work,
        **steps,
        "share": own / steps["first_s"],
        "again": steps["again_s"] / steps["first_s"],
        "processor_share": _share(steps["processor_s"]),
        "pages_per_s": chosen.pages / steps["first_s"],
    }


def _share(used: dict[str, float]) -> float:
    """Of the processor seconds of an import, those of the two children that parse and embed."""
    return (used["parsing"] + used["embedding"]) / sum(used.values())


def lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['pages']} pages, {found['chunks']} chunks"
    for name in ("first_s", "again_s", "release_s", "again_and_release_s", "parsing_s", "embedding_s"):
        yield f"{name:<20} {found[name]:8.2f}"
    yield f"parsing and embedding: {found['share']:.0%} of the first import (aim {SHARE_AIM:.0%})"
    used = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found["processor_s"].items())
    yield f"processor seconds: {used}; parsing and embedding {found['processor_share']:.0%}"
    yield f"unchanged once more: {found['again']:.1%} of the first (aim {AGAIN_AIM:.0%})"


async def main(chosen: argparse.Namespace) -> int:
    frame = Frame("loadtest.importing")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "pages"
        write_pages(folder, chosen)
        steps = await measured(folder, Path(home) / "gateway", chosen.jobs)
        found = report(steps, await asyncio.to_thread(alone, folder), chosen)
    whole = frame.filled(found)
    print("\n".join((*lines(found), load_line(whole))))
    write(chosen.json, whole)
    return 0 if found["share"] >= SHARE_AIM and found["again"] <= AGAIN_AIM else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(options())))
