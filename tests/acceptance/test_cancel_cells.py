"""Every cause against every phase, over a real socket: one end, one record, nothing held."""

import gc
import itertools
import random
from collections.abc import Iterator

import anyio
import pytest

from gateway.stream.session import CloseReason
from tests.acceptance.cancel_cells import (
    CAUSES,
    CELLS,
    IMPOSSIBLE,
    PHASES,
    STREAMING,
    Cell,
    end_of,
    standing_at,
)

PATIENCE_S = 30
TERMINAL = {"done", "error", "revoked"}


@pytest.fixture(autouse=True)
def without_garbage_collection() -> Iterator[None]:
    """What is only freed by the collector counts as leaked here."""
    gc.disable()
    yield
    gc.enable()


def test_the_matrix_has_no_hole() -> None:
    """Each cell is run or named as one that can't exist, with its reason."""
    assert {*CELLS, *IMPOSSIBLE} == set(itertools.product(CAUSES, PHASES))
    assert len(CELLS) + len(IMPOSSIBLE) == len(CAUSES) * len(PHASES)
    assert all(IMPOSSIBLE.values())


async def told(cell: Cell) -> tuple[str | None, int]:
    """The code that the client was told, and how many terminal events it saw; reads to the end."""
    try:
        head = await cell.wire.read_head()
        if head.status != 200:
            return str((await cell.wire.json())["code"]), 0
        names, code = [], None
        async for event in cell.wire.events():
            names.append(event.name)
            if event.name in {"error", "revoked"}:
                code = str(event.data.get("code") or event.data["reason"])
        return code, len([name for name in names if name in TERMINAL])
    except (EOFError, OSError, ValueError):  # cut off
        return None, 0


@pytest.mark.parametrize(("cause", "phase"), CELLS, ids=[f"{c}-{p}" for c, p in CELLS])
async def test_a_cause_ends_the_answer_wherever_it_stands(cause: str, phase: str) -> None:
    """One record with its reason, one terminal event at most, upstream closed, every place free."""
    reason, code = end_of(cause, phase)
    with anyio.fail_after(PATIENCE_S):
        async with standing_at(phase, frozenset({cause})) as cell:
            await cell.cause(cause)
            if code is not None and phase != "blocked_send":
                heard, terminals = await told(cell)
                assert heard == ("user" if cause == "revoke" and phase in STREAMING else code)
                assert terminals == (phase in STREAMING)
            await cell.settled()
            assert await cell.records() == [reason.value]


def _several(seed: int) -> tuple[str, list[str]]:
    rng = random.Random(seed)
    phase = rng.choice(PHASES)
    possible = [c for c in CAUSES if (c, phase) not in IMPOSSIBLE and c not in {"idle", "upstream_error"}]
    return phase, rng.sample(possible, k=min(len(possible), rng.choice((2, 3))))


@pytest.mark.parametrize("seed", range(24))
async def test_several_causes_at_once_still_end_it_once(seed: int) -> None:
    """Two or three in random order, side by side: one of them is written down, everything is free."""
    phase, causes = _several(seed)
    with anyio.fail_after(PATIENCE_S):
        async with standing_at(phase, frozenset(causes)) as cell:
            async with anyio.create_task_group() as tasks:
                for cause in causes:
                    tasks.start_soon(cell.cause, cause)
            await cell.settled()
            records = await cell.records()
            assert len(records) == 1
            possible = {end_of(cause, phase)[0] for cause in causes}
            assert CloseReason(records[0]) in possible
