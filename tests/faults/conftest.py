"""One town for all faults, and what a test notes as its evidence."""

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from loadtest.town import Town, town
from tests.faults.city import SETTINGS, City
from tests.harness.fault_table import EVIDENCE, ROW

Note = Callable[[str], None]


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    """Two gateways behind nginx, a worker, and every server that they need."""
    async with town(tmp_path_factory.mktemp("town"), **SETTINGS) as here:
        yield here


@pytest_asyncio.fixture(loop_scope="package")
async def city(running: Town) -> AsyncIterator[City]:
    """The town, whole and idle again."""
    here = City(running)
    await here.whole()
    yield here
    await here.reset_model()


@pytest.fixture
def evidence(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Note:
    """``evidence("model calls 10 -> 10")``: what the table shows beside the row of the mark ``fault``."""
    mark = request.node.get_closest_marker("fault")
    record_property(ROW, mark.args[0])
    return lambda text: record_property(EVIDENCE, text)
