"""Two sources that contradict each other: both are said by default, and none where a policy wants that."""

import pytest

from tests.integration.cache_world import Installation

SOURCES = {
    "rental.md": "# Rental\n\nThe deposit for a bicycle is 50 EUR.\n",
    "prices.md": "# Prices\n\nFor a bicycle the deposit is 80 EUR.\n",
}
QUESTION = "What is the deposit for a bicycle?"


@pytest.mark.parametrize(
    ("on_conflict", "reasons", "calls"), [("say_both", (), 1), ("refuse", ("SOURCES_CONFLICT",), 0)]
)
async def test_sources_in_conflict_are_said_or_refused(
    on_conflict: str, reasons: tuple[str, ...], calls: int
) -> None:
    """Refused before any model is asked, and never because of what its asker may not see."""
    async with Installation().desk(on_conflict=on_conflict) as desk:
        await desk.world.learn({"rental.md": SOURCES["rental.md"]})
        await desk.world.learn({"prices.md": SOURCES["prices.md"]}, allow=["group:sales"])
        assert (await desk.ask(QUESTION)).done.reasons == ()
        before = desk.world.model.called
        await desk.world.learn({"prices.md": SOURCES["prices.md"]})
        done = (await desk.ask(QUESTION)).done
        assert (done.reasons, desk.world.model.called - before) == (reasons, calls)
