"""Which tests run in one process: those of a module, and of modules that share what is slow to start."""

from pathlib import PurePosixPath

from xdist.scheduler import LoadFileScheduling

_TOGETHER = {
    "test_sample_questions": "demos",
    "test_hostile_names": "demos",
    "test_faults": "town",
    "test_shared_quota": "town",
}


class ModulesTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """As ``--dist loadfile``, with some files as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _TOGETHER.get(PurePosixPath(file).stem, file)
