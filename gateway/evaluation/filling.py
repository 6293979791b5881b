"""Filling a gateway that is evaluated: documents in, one release of them out, through its own API."""

import html
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from gateway.client import GatewayClient, UploadedFile
from gateway.evaluation.gateways import FILLING, GROUP, EvaluationFailed, Target
from gateway.evaluation.labelled import Passage

_FILES_AN_UPLOAD = 100
_POLL_S = 0.1
_ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


@dataclass(frozen=True, slots=True)
class Document:
    """What is imported: a file with its media type, and the category it gets."""

    source: str
    media_type: str
    content: bytes
    category: str = ""


def fill(target: Target, knowledge_base: str, documents: Sequence[Document]) -> None:
    """Imports all of them and activates their release. Raises ApiError, EvaluationFailed."""
    with target.client(FILLING) as gateway:
        for category in sorted({document.category for document in documents}):
            alike = (document for document in documents if document.category == category)
            _upload(gateway, knowledge_base, category, alike)
        accepted = gateway.build_release(knowledge_base)
        gateway.activate(_wait_for(gateway, accepted["task_id"])["release_id"])


def _upload(
    gateway: GatewayClient, knowledge_base: str, category: str, documents: Iterable[Document]
) -> None:
    rest = iter(documents)
    fields = {"knowledge_base": knowledge_base, "allow": f"group:{GROUP}", "category": category}
    fields = {name: value for name, value in fields.items() if value}
    while part := list(islice(rest, _FILES_AN_UPLOAD)):
        files = [UploadedFile(d.source, d.content, d.media_type) for d in part]
        _wait_for(gateway, gateway.upload(files, fields)["task_id"])


def _wait_for(gateway: GatewayClient, task_id: str) -> dict[str, str]:
    while (task := gateway.task(task_id))["state"] not in _ENDED:
        time.sleep(_POLL_S)
    if task["state"] != "SUCCEEDED":
        raise EvaluationFailed(f"an import ended as {task['state']}: {task['error']}")
    return task


def document_of(passage: Passage) -> Document:
    """The passage as a page of its own: its text word for word, its title as the page's."""
    title = f"<title>{html.escape(passage.title)}</title>" if passage.title else ""
    page = f"<html><head>{title}</head><body><p>{html.escape(passage.text)}</p></body></html>"
    return Document(source_of(passage.id), "text/html", page.encode())


def source_of(passage_id: str) -> str:
    return f"{passage_id}.html"
