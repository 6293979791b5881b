"""Real parts that any test may ask for; each is started once a test process, on a free port."""

import gc
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.contract_table import ContractTable
from tests.harness.fault_table import FaultTable

if TYPE_CHECKING:
    from tests.harness.milvus_server import MilvusServer
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer
    from tests.harness.s3 import S3Server

# Imported where they are started: most test processes need none of them.

#: What collecting makes (modules, ten thousand tests) lives until the end: to look through it again and again
#: was a third of collecting and a twelfth of the tests' own time.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on only what tests make is looked through."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[PostgresServer]":
    """A real PostgreSQL of this test process."""
    from tests.harness.postgres import postgres_server

    with postgres_server(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[MilvusServer]":
    """A real Milvus server of this test process."""
    from tests.harness.milvus_server import milvus_server

    with milvus_server(tmp_path_factory.mktemp("milvus")) as server:
        yield server


@pytest.fixture(scope="session")
def guarded_milvus(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[MilvusServer]":
    """A real Milvus server of this test process that asks who is there."""
    from tests.harness.milvus_server import milvus_server

    with milvus_server(tmp_path_factory.mktemp("guarded"), authorization=True) as server:
        yield server


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RedisServer]":
    """A real Redis of this test process."""
    from tests.harness.redis_server import redis_server

    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> "Iterator[S3Server]":
    """An S3-compatible server of this test process."""
    from tests.harness.s3 import s3_server

    with s3_server() as server:
        yield server


def pytest_configure(config: pytest.Config) -> None:
    """The run ends with tables of contract suites and faults; only the parent of several prints."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Who is started in the background ignores it, and what it starts would as well: some tests send it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ContractTable(), "contract-table")
        config.pluginmanager.register(FaultTable(), "fault-table")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes a module stays whole, and modules that share a demo stay together."""
    from tests.harness.scheduling import ModulesTogether

    return ModulesTogether(config, log)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """In the normal run only the modules of one group use Milvus servers, one after the other."""
    from tests.harness.scheduling import last_of_its_group

    several = hasattr(item.config, "workerinput") and item.config.option.markexpr == "not soak"
    if several and last_of_its_group(item.path, None if nextitem is None else nextitem.path):
        from tests.harness.milvus_server import rest

        rest()


#: modules whose tests on servers, or all of whose tests, only ``make soak`` runs: others are about the same
#: kinds (the contract suites about hostile names, the adapters' own tests about restarts)
_SOAK_ON_SERVERS = {
    *("test_api_keys", "test_bad_input", "test_cli", "test_foreign_tenants", "test_http_surface"),
    *("test_model_endpoint", "test_revoked_and_scoped", "test_sample_questions"),
}
_SOAK = {"test_doctor_moves", "test_hostile_names", "test_restore_losses", "test_two_processes"}
#: modules that need a store of rows for what they are about once: all else of them runs on twins, and
#: ``make soak`` runs all of it on Lite
_ONCE_ON_LITE = {
    **dict.fromkeys(("test_import_damage", "test_import_release", "test_class_mover"), "none of them"),
    "test_release_isolation": "test_building_a_revision_never_changes_the_active_one",
    "test_cleanup": "test_a_deleted_document_leaves_nothing_behind",
    "test_reclaim": "test_rows_of_a_killed_worker_go",
    "test_release_moments": "test_a_rollback_brings_nothing_back_that_was_revoked",
    "test_space_change": "test_the_way_back_leads_across_spaces",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: each waits for what it has started for a fifth of its time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)  # before pytest looks at marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what takes long, so that ``make test`` stays under a quarter of an hour on two cores.

    Of a contract suite the parts with a database or a server are asked each thing once; what else there is to
    ask with, the twins are asked, and the soak asks all of them.
    """
    asked = set()
    for item in items:
        module = item.path.stem
        parts = item.name.partition("[")[2].rstrip("]").split("-")
        on_servers, on_lite = "servers" in parts, "real" in parts
        again = on_lite and not item.name.startswith(_ONCE_ON_LITE.get(module, "test_"))
        asked_of = next((part for part in ("embedded", "real") if part in parts), None)
        if asked_of and item.path.parent.name == "contract":
            question = (module, item.name.partition("[")[0], asked_of)
            again = question in asked
            asked.add(question)
        if again or module in _SOAK or (module in _SOAK_ON_SERVERS and on_servers):
            item.add_marker(pytest.mark.soak)
