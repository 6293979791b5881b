"""Which tests run in one process: those of a module, and of modules that share what is slow to start."""

from pathlib import PurePath, PurePosixPath

from xdist.scheduler import LoadFileScheduling

_TOGETHER = {
    "test_sample_questions": "demos",
    "test_hostile_names": "demos",
    # one Milvus server for all of them: one costs more than most of their tests
    **dict.fromkeys(
        ("test_doctor", "test_faults", "test_migrate", "test_milvus_server_accounts", "test_shared_quota"),
        "servers",
    ),
    **dict.fromkeys(
        ("test_milvus_server_faults", "test_milvus_server_seals", "test_production", "test_search_modes"),
        "servers",
    ),
    **dict.fromkeys(("test_two_processes", "test_vectors", "test_worker_process"), "servers"),
}


def last_of_its_group(file: PurePath, following: PurePath | None) -> bool:
    """Whether the servers that the group of this module shares have nothing more to do."""
    group = _TOGETHER.get(file.stem)
    return group is not None and (following is None or _TOGETHER.get(following.stem) != group)


class ModulesTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """As ``--dist loadfile``, with some files as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _TOGETHER.get(PurePosixPath(file).stem, file)
