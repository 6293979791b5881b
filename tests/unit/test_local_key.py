"""The local signing key: made once, whole, for its owner's eyes, whatever a killed start has left."""

import os
import stat
from pathlib import Path

from gateway.adapters.identity.tokens import LocalKey


def test_a_key_is_made_once_and_leaves_no_draft(tmp_path: Path) -> None:
    """The second load reads what the first one wrote."""
    first, second = LocalKey.load(tmp_path), LocalKey.load(tmp_path)
    assert repr(first) == repr(second)
    (file,) = (tmp_path / "keys").iterdir()
    assert file.name == "es256.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_draft_of_a_killed_start_is_in_nobodys_way(tmp_path: Path) -> None:
    """In a container the next start has the process id of the killed one."""
    (tmp_path / "keys").mkdir()
    stale = tmp_path / "keys" / f".es256.json.{os.getpid()}"
    stale.write_bytes(b"{")
    assert "kid=" in repr(LocalKey.load(tmp_path))
    assert (tmp_path / "keys" / "es256.json").stat().st_nlink == 1
