"""``import``: a folder into a knowledge base; a second run sends only what the first one didn't."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from gateway.access.classes import Acl
from gateway.cli import summary
from gateway.cli.comparing import READY, ImportPlan, compared
from gateway.cli.folder import Found, found_below, printable, total_bytes
from gateway.cli.following import ImportRun, Outcome
from gateway.cli.metadata import Metadata
from gateway.cli.options import DEFAULT_URL, AsJson, KnowledgeBase, Token, Url, client, exiting, notes
from gateway.cli.patience import Patience
from gateway.cli.progress import ImportProgress
from gateway.cli.pruning import Pruning
from gateway.cli.uploading import Uploader
from gateway.cli.waiting import release
from gateway.client import GatewayClient
from gateway.errors import GatewayError, InvalidField
from gateway.retrieval.risk import MARKER

FAILED = 1
_NAMED = 20
_PLANNED = "{:<13}  {:>10}  {}"
_ALWAYS_COUNTED = frozenset({"new", "changed"})


def add_commands(app: typer.Typer) -> None:
    app.command("import")(exiting(import_))


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files and folders.")],
    kb: KnowledgeBase,
    allow: Annotated[list[str], typer.Option("--allow", help="group:G, user:U or public.")],
    deny: Annotated[list[str] | None, typer.Option("--deny", help="Beats --allow.")] = None,
    category: Annotated[str, typer.Option("--category")] = "",
    sensitivity: Annotated[int, typer.Option("--sensitivity", min=0, max=3)] = 0,
    author: Annotated[str, typer.Option("--author", help="Who wrote them.")] = "",
    risk: Annotated[list[str] | None, typer.Option("--risk", help="A risk marker, like external.")] = None,
    include: Annotated[
        list[str] | None, typer.Option("--include", help="Only such files of a folder, like '*.html'.")
    ] = None,
    activate: Annotated[bool, typer.Option("--activate", help="Release it at once.")] = False,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Release the good ones when some have failed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the base's documents that the folder no longer has.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask before --prune deletes.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=32, help="Uploads at a time.")] = 4,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to wait for a server that is busy or away.")
    ] = 60.0,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Import files and folders into a knowledge base (scopes ingest, and release for --activate).

    What the gateway has already, just so, isn't sent again: after a failure or Ctrl-C the same command does
    the rest.
    """
    metadata = _metadata(kb, allow, deny or [], category, sensitivity, author, risk or [])
    pruning = Pruning(paths, include or [], wanted=prune, agreed=yes or dry_run)
    found = found_below(paths, include or [])
    if not found.files and not found.failed:
        raise typer.BadParameter("there is no file to import")
    with client(url, token) as gateway:
        listing = gateway.documents(kb)
        largest = listing.get("limits", {}).get("document_bytes")
        plan = compared(found, listing["documents"], metadata, largest)
        plan.gone = pruning.chosen(plan.gone, found)
        if dry_run:
            return _show_plan(plan, found, kb, as_json)
        return _Import(gateway, plan, metadata, patience, as_json).run(
            found, pruning, jobs, activate=activate, allow_partial=allow_partial
        )


def _metadata(
    kb: str,
    allow: Sequence[str],
    deny: Sequence[str],
    category: str,
    sensitivity: int,
    author: str,
    risk: Sequence[str],
) -> Metadata:
    """As the server will understand them, who takes the blanks off both ends of a text."""
    try:
        acl = Acl.parse(allow, deny)
    except InvalidField as error:
        raise typer.BadParameter(error.detail) from error
    markers = tuple(marker.strip() for entry in risk for marker in entry.split(","))
    for odd in (marker for marker in markers if marker and not MARKER.fullmatch(marker)):
        raise typer.BadParameter(f"no risk marker, which has up to 32 of a-z, 0-9 and '-': {printable(odd)}")
    return Metadata(kb.strip(), acl, category.strip(), sensitivity, author.strip(), markers)


class _Import:
    """One command's course after its plan is made."""

    def __init__(
        self, gateway: GatewayClient, plan: ImportPlan, metadata: Metadata, patience_s: float, as_json: bool
    ) -> None:
        self._gateway = gateway
        self._plan = plan
        self._metadata = metadata
        self._as_json = as_json
        self._patience_s = patience_s
        self._progress = ImportProgress(len(plan.to_send), total_bytes(plan.to_send))
        patience = Patience(patience_s, self._progress.waits)
        self._run = ImportRun(gateway, Uploader(gateway, metadata, patience), patience, self._progress)

    def run(self, found: Found, pruning: Pruning, jobs: int, *, activate: bool, allow_partial: bool) -> int:
        pruning.ask(self._plan.gone)
        _note(summary.passed_over(found.passed_over))
        try:
            with self._progress:
                self._run.run(self._plan.to_send, jobs)
        except KeyboardInterrupt:
            self._say_how_far()
            return FAILED
        except GatewayError:
            self._say_how_far()
            raise
        outcomes = self._outcomes()
        failed = self._show(outcomes)
        if self._plan.gone and not failed:
            pruning.delete(self._gateway, self._plan.gone)
        elif self._plan.gone:
            _note("Nothing was deleted, because some documents have failed.")
        self._say_what_is_hidden(outcomes)
        if activate and (allow_partial or not failed):
            patience = Patience(self._patience_s, self._progress.waits)
            done = release(self._gateway, self._metadata.knowledge_base, patience)
            _note(f"Release {done['release_sequence']} is active.")
        elif activate:
            _note("Nothing was activated; the release before stays.")
        return FAILED if failed else 0

    def _outcomes(self) -> list[Outcome]:
        known = [Outcome.unchanged(document) for document in self._plan.unchanged]
        never_sent = [Outcome.never_sent(each) for each in self._plan.failed]
        return sorted((*known, *never_sent, *self._run.outcomes), key=lambda outcome: outcome.source)

    def _show(self, outcomes: Sequence[Outcome]) -> bool:
        """Whether any of them has failed."""
        if self._as_json:
            for outcome in outcomes:
                line = asdict(outcome) | {"reason": outcome.reason or None}
                print(json.dumps(line, ensure_ascii=False))
        for text in summary.failures(outcomes):
            _note(text)
        good = sum(outcome.state == READY for outcome in outcomes)
        unchanged = len(self._plan.unchanged)
        rest = f"; {unchanged} of them were there already" if unchanged else ""
        _note(f"{good} of {len(outcomes)} documents are ready in {self._metadata.knowledge_base}{rest}.")
        return good < len(outcomes)

    def _say_what_is_hidden(self, outcomes: Sequence[Outcome]) -> None:
        """Documents that readers don't get, or only once a person has approved them."""
        listed: Sequence[Mapping[str, Any]] = self._plan.unchanged
        if self._run.outcomes:
            listed = self._gateway.documents(self._metadata.knowledge_base)["documents"]
        ids = {outcome.document_id for outcome in outcomes}
        mine = [document for document in listed if document["document_id"] in ids]
        revoked = [document for document in mine if document.get("revoked_at") is not None]
        _name_some("Not shown to readers, because revoked", revoked)
        waiting = [document for document in mine if document.get("awaiting_approval")]
        _name_some("Not shown to readers before somebody approves them", waiting, "qa-gateway approve ")

    def _say_how_far(self) -> None:
        total = len(self._plan.to_send)
        _note(
            f"Broken off: {self._run.handed_over} of {total} files were handed over; the server goes on with "
            "them. Run the same command again for the rest."
        )


def _show_plan(plan: ImportPlan, found: Found, kb: str, as_json: bool) -> int:
    """Exit code of a dry run: 1 when a file could not be imported."""
    if as_json:
        for line in _plan_lines(plan, found):
            print(json.dumps(line, ensure_ascii=False))
    else:
        words = {file.source: word for word, files in plan.why_sent.items() for file in files}
        for file in plan.to_send:
            print(_PLANNED.format(_spoken(words[file.source]), decimal(file.size_bytes), file.source))
        for document in plan.gone:
            print(_PLANNED.format("delete", "", printable(document["source"])))
    for text in summary.failures(map(Outcome.never_sent, plan.failed)):
        _note(text)
    _note(summary.passed_over(found.passed_over))
    sent = [
        f"{len(files)} {_spoken(word)}"
        for word, files in plan.why_sent.items()
        if files or word in _ALWAYS_COUNTED
    ]
    _note(
        f"{', '.join(sent)}, {len(plan.unchanged)} unchanged, "
        f"{len(plan.failed)} can't be imported, {len(plan.gone)} to be deleted. "
        f"{decimal(total_bytes(plan.to_send))} would be sent to {kb}; nothing was."
    )
    return FAILED if plan.failed else 0


def _plan_lines(plan: ImportPlan, found: Found) -> Iterable[dict[str, Any]]:
    """``plan`` is a reason of ``why_sent``, unchanged, passed_over, failed or delete."""
    for word, files in plan.why_sent.items():
        for file in files:
            yield {"plan": word, "source": file.source, "size_bytes": file.size_bytes, "reason": None}
    for word, documents in (("unchanged", plan.unchanged), ("delete", plan.gone)):
        for document in documents:
            size = (document["standing"] or {}).get("size_bytes")
            yield {"plan": word, "source": document["source"], "size_bytes": size, "reason": None}
    for word, left_out in (("passed_over", found.passed_over), ("failed", plan.failed)):
        for each in left_out:
            yield {"plan": word, "source": each.source, "size_bytes": None, "reason": each.reason}


def _name_some(words: str, documents: Sequence[Mapping[str, Any]], command: str = "") -> None:
    """What ``words`` say of the documents, and the first of them with what to type."""
    if documents:
        _note(f"{words}: {len(documents)}.")
    for document in documents[:_NAMED]:
        _note(f"  {printable(document['source'])}: {command}{document['document_id']}")


def _spoken(word: str) -> str:
    return word.replace("_", " ")


def _note(line: str) -> None:
    if line:
        notes.print(line, markup=False)
