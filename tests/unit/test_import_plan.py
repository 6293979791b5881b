"""What an import has to send, compared with what the gateway lists."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.access.classes import Acl
from gateway.cli.comparing import ImportPlan, compared
from gateway.cli.folder import found_below
from gateway.cli.metadata import Metadata, media_type_of
from gateway.cli.pruning import Pruning
from gateway.ingest.uploads import NewDocument

TEXT = "# Hours\n\nThe library opens at nine.\n"
STAFF = Acl.parse(["group:staff"])
METADATA = Metadata("handbook", STAFF, "help", 1, "ann", ("external",))


def listed(source: str, **fields: Any) -> dict[str, Any]:
    """A document as the gateway lists it: imported from TEXT with METADATA unless told otherwise."""
    document = NewDocument(
        source=source,
        uri=source,
        media_type="text/markdown",
        original_key="originals/1",
        content_sha256=hashlib.sha256(TEXT.encode()).hexdigest(),
        size_bytes=len(TEXT),
        acl=STAFF,
        category="help",
        sensitivity=1,
        author="ann",
        risk=("external",),
    )
    record = {
        "document_id": f"doc_{source}",
        "document_version": 1,
        "source": source,
        "state": "READY",
        "allow": ["group:staff"],
        "deny": [],
        "withdrawn": False,
    }
    standing = {
        "document_version": 1,
        "state": "READY",
        "size_bytes": document.size_bytes,
        "fingerprint": document.fingerprint,
    }
    return record | {"standing": standing} | fields


def planned(folder: Path, *documents: dict[str, Any], metadata: Metadata = METADATA) -> ImportPlan:
    return compared(found_below([folder]), documents, metadata)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(TEXT)
    return tmp_path


def test_only_what_differs_is_sent(folder: Path) -> None:
    """The same bytes and metadata aren't, a changed file and a new one are."""
    (folder / "c.md").write_text(TEXT.replace("nine", "five"))
    plan = planned(folder, listed("a.md"), listed("c.md"))
    assert [file.source for file in plan.new] == ["b.md"]
    assert [file.source for file in plan.changed] == ["c.md"]
    assert [document["source"] for document in plan.unchanged] == ["a.md"]
    assert [file.source for file in plan.to_send] == ["b.md", "c.md"]


@pytest.mark.parametrize(
    "fields",
    [
        {"standing": {"state": "READY", "size_bytes": 1}},
        {"standing": {"state": "READY", "size_bytes": len(TEXT), "fingerprint": "0" * 32}},
        {"allow": ["public"]},
        {"deny": ["user:eve"]},
    ],
    ids=["other_size", "other_bytes", "other_readers", "not_for_eve"],
)
def test_a_document_that_does_not_stand_as_it_was_meant_is_sent_again(
    folder: Path, fields: dict[str, Any]
) -> None:
    """Seen by others, or made from something else."""
    plan = planned(folder, listed("a.md", **fields), listed("b.md"))
    assert [file.source for file in plan.changed] == ["a.md"]


def test_a_file_of_which_nothing_stands_is_not_called_changed(folder: Path) -> None:
    """Its import failed before, was rolled back, or hasn't ended: each is sent again, for that reason."""
    for name in ("c.md", "d.md"):
        (folder / name).write_text(TEXT)
    under_way = listed("c.md")
    under_way["standing"]["state"] = "BUILDING"
    plan = planned(
        folder,
        listed("a.md", standing=None, state="FAILED"),
        listed("b.md", standing=None, withdrawn=True),
        under_way,
        listed("d.md"),
    )
    why = {word: [file.source for file in files] for word, files in plan.why_sent.items() if files}
    assert why == {"failed_before": ["a.md"], "rolled_back": ["b.md"], "under_way": ["c.md"]}
    assert [file.source for file in plan.to_send] == ["a.md", "b.md", "c.md"]
    assert [document["source"] for document in plan.unchanged] == ["d.md"]


@pytest.mark.parametrize(
    "metadata",
    [
        Metadata("handbook", STAFF, "help", 2, "ann", ("external",)),
        Metadata("handbook", STAFF, "", 1, "ann", ("external",)),
        Metadata("handbook", STAFF, "help", 1, "bob", ("external",)),
        Metadata("handbook", STAFF, "help", 1, "ann"),
        Metadata("handbook", Acl.parse(["group:staff"], ["user:eve"]), "help", 1, "ann", ("external",)),
    ],
    ids=["sensitivity", "category", "author", "risk", "acl"],
)
def test_other_metadata_sends_everything(folder: Path, metadata: Metadata) -> None:
    """Though not a byte has changed."""
    plan = planned(folder, listed("a.md"), listed("b.md"), metadata=metadata)
    assert [file.source for file in plan.changed] == ["a.md", "b.md"]


def test_a_document_whose_newest_version_failed_is_compared_with_the_one_before(folder: Path) -> None:
    """The file was mended: what readers have is what the folder has."""
    plan = planned(folder, listed("a.md", state="FAILED", document_version=2), listed("b.md"))
    assert len(plan.unchanged) == 2


def test_a_gateway_that_does_not_say_what_stands_gets_everything(folder: Path) -> None:
    """An older one: it will say itself what it has."""
    older = listed("a.md")
    del older["standing"]
    assert [file.source for file in planned(folder, older).changed] == ["a.md"]


def test_a_file_above_the_gateways_limit_is_not_sent(folder: Path) -> None:
    """It fails here, before it has travelled."""
    (folder / "b.md").write_text(TEXT * 2)
    plan = compared(found_below([folder]), [], METADATA, len(TEXT))
    assert [file.source for file in plan.new] == ["a.md"]
    assert [(each.source, each.reason) for each in plan.failed] == [("b.md", "too_large")]


def test_a_file_that_has_gone_since_it_was_found_is_a_failure(folder: Path) -> None:
    """The others are compared."""
    found = found_below([folder])
    (folder / "a.md").unlink()
    plan = compared(found, [listed("a.md"), listed("b.md")], METADATA)
    assert [(each.source, each.reason) for each in plan.failed] == [("a.md", "unreadable")]
    assert len(plan.unchanged) == 1


def test_only_what_the_folder_lacks_is_pruned(folder: Path) -> None:
    """Not what is there and can't be imported, nor what the patterns leave out; nothing without a wish."""
    (folder / "empty.md").touch()
    plan = planned(folder, *(listed(name) for name in ("a.md", "empty.md", "gone.md", "gone.html")))
    found = found_below([folder])

    def chosen(include: list[str], *, wanted: bool = True) -> list[str]:
        pruning = Pruning([folder], include, wanted=wanted, agreed=True)
        return [document["source"] for document in pruning.chosen(plan.gone, found)]

    assert chosen([]) == ["gone.html", "gone.md"]
    assert chosen(["*.html"]) == ["gone.html"]
    assert chosen([], wanted=False) == []


OTHER: dict[str, Any] = {
    "content_sha256": "0",
    "media_type": "text/plain",
    "uri": "b.md",
    "category": "x",
    "valid_from": 5,
    "valid_until": 5,
    "sensitivity": 1,
    "author": "ann",
    "approval": "approved",
    "risk": ("external",),
    "acl": Acl.parse(["group:staff"], ["user:eve"]),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_fingerprint_covers_everything_about_an_upload(name: str) -> None:
    """But not where its bytes lie."""
    one = NewDocument("a.md", "a.md", "text/markdown", "originals/1", "f", 1, STAFF)
    assert replace(one, **{name: OTHER[name]}).fingerprint != one.fingerprint
    assert replace(one, original_key="originals/2").fingerprint == one.fingerprint


def test_a_media_type_does_not_depend_on_the_machine() -> None:
    """It is part of what makes an upload the same as before."""
    assert media_type_of("a/B.MD") == "text/markdown"
    assert media_type_of("a.docx") == media_type_of("Makefile") == "application/octet-stream"
