"""What an import finds below a folder, and why it leaves the rest out."""

import os
import unicodedata
from pathlib import Path

import pytest
import typer

from gateway.cli.folder import Found, found_below, printable
from gateway.cli.reasons import PASSED_OVER, advice

TEXT = "# Hours\n\nThe library opens at nine.\n"


def made(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEXT)
    return folder


def sources(found: Found) -> list[str]:
    return [file.source for file in found.files]


def reasons(found: Found) -> dict[str, str]:
    return {each.source: each.reason for each in (*found.passed_over, *found.failed)}


def test_a_folder_gives_its_files_by_their_path_below_it(tmp_path: Path) -> None:
    """In order of names; hidden ones and types that nobody reads are passed over."""
    folder = made(tmp_path, "b.md", "a/c.html", ".git/config.md", "a/.draft.md", "photo.png")
    (folder / "nothing.md").touch()
    found = found_below([folder])
    assert sources(found) == ["a/c.html", "b.md"]
    assert reasons(found) == {
        ".git": "hidden",
        "a/.draft.md": "hidden",
        "photo.png": "unsupported_type",
        "nothing.md": "empty",
    }
    assert not found.failed
    assert [file.size_bytes for file in found.files] == [len(TEXT)] * 2


def test_a_file_named_by_itself_is_never_passed_over(tmp_path: Path) -> None:
    """Not for its type, nor for being hidden: the server says what it thinks of it."""
    folder = made(tmp_path, ".hidden.png")
    assert sources(found_below([folder / ".hidden.png"])) == [".hidden.png"]


def test_only_what_the_patterns_match_is_included(tmp_path: Path) -> None:
    """Patterns are of the path below the folder."""
    found = found_below([made(tmp_path, "a.md", "b.html", "deep/c.html")], ["*.html"])
    assert sources(found) == ["b.html", "deep/c.html"]
    assert reasons(found) == {"a.md": "not_included"}


def test_links_are_followed_to_files_of_the_folder_alone(tmp_path: Path) -> None:
    """Not out of it, not to folders, not in a circle, not to nowhere."""
    folder = made(tmp_path / "in", "a.md", "deep/b.md")
    made(tmp_path / "out", "secret.md")
    (folder / "again.md").symlink_to("a.md")
    (folder / "secret.md").symlink_to(tmp_path / "out" / "secret.md")
    (folder / "deep" / "up").symlink_to(folder)
    (folder / "away").symlink_to(tmp_path / "out")
    (folder / "round.md").symlink_to("round.md")
    (folder / "gone.md").symlink_to("nowhere.md")
    found = found_below([folder])
    assert sources(found) == ["a.md", "again.md", "deep/b.md"]
    assert reasons(found) == {
        "secret.md": "outside",
        "deep/up": "folder_link",
        "away": "outside",
        "round.md": "broken_link",
        "gone.md": "broken_link",
    }


def test_a_folder_may_be_given_by_a_link(tmp_path: Path) -> None:
    """What lies in it doesn't lie outside of it."""
    made(tmp_path / "real", "a.md")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "b.md").symlink_to("a.md")
    assert sources(found_below([tmp_path / "link"])) == ["a.md", "b.md"]


def test_a_pipe_is_passed_over_and_not_waited_for(tmp_path: Path) -> None:
    """As sockets and devices are."""
    os.mkfifo(made(tmp_path, "a.md") / "pipe.md")
    found = found_below([tmp_path])
    assert (sources(found), reasons(found)) == (["a.md"], {"pipe.md": "not_a_file"})


def test_a_name_is_the_same_however_its_accents_are_written(tmp_path: Path) -> None:
    """A file from a system that decomposes names is the same document; two of them are one too many."""
    decomposed, composed = unicodedata.normalize("NFD", "café.md"), unicodedata.normalize("NFC", "café.md")
    made(tmp_path / "one", decomposed)
    assert sources(found_below([tmp_path / "one"])) == [composed]
    found = found_below([made(tmp_path / "two", decomposed, composed)])
    assert (sources(found), reasons(found)) == ([composed], {composed: "same_name"})


def test_two_folders_with_the_same_name_below_them_are_told_apart(tmp_path: Path) -> None:
    """The second file isn't taken for a new version of the first."""
    folders = [made(tmp_path / "a", "same.md"), made(tmp_path / "b", "same.md", "other.md")]
    found = found_below(folders)
    assert sources(found) == ["other.md", "same.md"]
    (failed,) = found.failed
    assert (failed.source, failed.reason) == ("same.md", "same_name")
    assert str(tmp_path / "a" / "same.md") in failed.detail


@pytest.mark.parametrize(
    "name",
    [b"\xff.md", b"tab\t.md", b"line\n.md", b"back\\slash.md", b" blank.md", b"x/" * 250 + b"long.md"],
    ids=["bytes", "tab", "line", "backslash", "blank", "long"],
)
def test_a_name_that_no_document_can_have_is_a_failure(tmp_path: Path, name: bytes) -> None:
    """It is said with a name that any terminal can show, and the other files are found."""
    path = os.path.join(os.fsencode(tmp_path), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(TEXT)
    found = found_below([made(tmp_path, "a.md")])
    assert sources(found) == ["a.md"]
    (failed,) = found.failed
    assert failed.reason == "bad_name"
    assert failed.source.isprintable()
    failed.source.encode()


def test_a_double_quote_is_written_as_forms_write_it(tmp_path: Path) -> None:
    """What arrives at the server is what the command compares with."""
    assert sources(found_below([made(tmp_path, 'a"b.md')])) == ["a%22b.md"]


def test_a_path_that_does_not_exist_is_wrong_usage(tmp_path: Path) -> None:
    """Also when its name is none that could be printed."""
    with pytest.raises(typer.BadParameter, match="No such file"):
        found_below([tmp_path / os.fsdecode(b"none\xff.md")])


def test_a_folder_that_cannot_be_looked_into_is_a_failure(tmp_path: Path) -> None:
    """Here because its path is too long for the system; the rest is found all the same."""
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        for _ in range(20):
            os.mkdir("d" * 240)
            os.chdir("d" * 240)
        Path("deep.md").write_text(TEXT)
    finally:
        os.chdir(here)
    found = found_below([made(tmp_path, "a.md")])
    assert sources(found) == ["a.md"]
    (failed,) = found.failed
    assert failed.reason == "unreadable"
    assert failed.source.endswith("d/")


def test_every_reason_has_words() -> None:
    """What is passed over needs no advice, a failure does."""
    assert all(PASSED_OVER.values())
    assert all(advice(reason) for reason in ("bad_name", "same_name", "unreadable", "changed", "too_large"))


def test_whatever_a_name_holds_can_be_printed() -> None:
    """Bytes that are no text, control characters, the end of a line."""
    assert printable(os.fsdecode(b"a\xff\n\x1b[2J.md")) == "a\\udcff\\n\\x1b[2J.md"
