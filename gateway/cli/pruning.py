"""``import --prune``: deleting documents whose files are no longer there, never by accident."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import typer

from gateway.cli.folder import ROOT, Found, printable
from gateway.cli.options import notes
from gateway.client import ApiError, GatewayClient

_SHOWN = 20
_NOT_FOUND = 404


class Pruning:
    """``agreed`` spares the question. Raises typer.BadParameter when it can't know what is gone."""

    def __init__(self, paths: Sequence[Path], include: Sequence[str], *, wanted: bool, agreed: bool) -> None:
        if wanted and not (len(paths) == 1 and paths[0].is_dir()):
            raise typer.BadParameter("--prune takes one folder, which the knowledge base is made from")
        self._include = include
        self._wanted = wanted
        self._agreed = agreed

    def chosen(self, gone: Sequence[Mapping[str, Any]], found: Found) -> list[Mapping[str, Any]]:
        """What is to be deleted of the documents that the folder doesn't have: nothing that --include would
        not look for, nothing below a folder that can't be looked into.
        """
        unseen = tuple(each.source for each in found.failed if each.source.endswith("/"))
        if not self._wanted or ROOT in unseen:
            return []
        return [
            document
            for document in gone
            if self._looked_for(document["source"]) and not document["source"].startswith(unseen)
        ]

    def _looked_for(self, source: str) -> bool:
        return not self._include or any(PurePosixPath(source).match(pattern) for pattern in self._include)

    def ask(self, gone: Sequence[Mapping[str, Any]]) -> None:
        """Raises typer.BadParameter when there is nobody to ask, typer.Exit when he doesn't agree."""
        if not gone or self._agreed:
            return
        notes.print(f"--prune would delete, because no longer in the folder ({len(gone)}):")
        for document in gone[:_SHOWN]:
            notes.print(f"  {printable(document['source'])}", markup=False)
        if len(gone) > _SHOWN:
            notes.print(f"  … and {len(gone) - _SHOWN} more; --dry-run names all of them")
        if not sys.stdin.isatty():
            raise typer.BadParameter(
                "nobody is there to be asked: say --yes to delete these, or leave --prune out. Nothing was "
                "sent, nothing was deleted",
                param_hint="--prune",
            )
        if not typer.confirm("Delete them?", err=True):
            notes.print("Nothing was sent.")
            raise typer.Exit(1)

    def delete(self, gateway: GatewayClient, gone: Sequence[Mapping[str, Any]]) -> None:
        """Blocks each for every reader at once. Raises ApiError, ServerUnreachable."""
        for document in gone:
            try:
                gateway.delete_document(document["document_id"])
            except ApiError as error:
                if error.status != _NOT_FOUND:  # else somebody was faster
                    raise
        notes.print(f"Deleted, because no longer in the folder: {len(gone)}.")
