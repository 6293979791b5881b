"""``ask`` and ``search``: answers and passages in the terminal."""

import json
import unicodedata
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from gateway.cli.options import DEFAULT_URL, AsJson, KnowledgeBase, Token, Url, client, exiting, notes, out
from gateway.client import StreamEvent

FAILED = 1
REFUSED = 3
#: why ``auto`` took no other path, in words
_FALLBACKS = {
    "embedded_store": "an embedded store has no other path",
    "not_installed": "the other path is not installed",
}


def add_commands(app: typer.Typer) -> None:
    app.command()(exiting(ask))
    app.command()(exiting(search))


def ask(
    question: Annotated[str, typer.Argument(help="What to ask.")],
    kb: Annotated[str | None, typer.Option("--kb", help="The knowledge base to ask.")] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", help="A conversation to go on with.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Have it answered anew: nothing kept is told, or kept of it.")
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Ask a question; the answer streams, its sources follow. Exit 3 = refused for want of evidence."""
    with client(url, token) as gateway:
        events = gateway.ask(question, knowledge_base=kb, conversation=conversation, fresh=fresh)
        return _show(events, as_json)


def _show(events: Iterable[StreamEvent], as_json: bool) -> int:
    last: StreamEvent | None = None
    for event in events:
        last = event
        if as_json:
            line = {"event": event.name, "id": event.sequence, **event.data}
            print(json.dumps(line, ensure_ascii=False), flush=True)
        elif event.name == "meta":
            _show_asked(event.data.get("searched_for"))
        elif event.name == "delta":
            # not by rich, which would drop the spaces at the end of each piece
            print(_harmless(event.data["text"]), end="", flush=True)
        elif event.name in {"done", "error", "revoked"}:
            _show_end(event)
    if last is None or last.name not in {"done", "error", "revoked"}:
        notes.print("The answer was cut off: it is not complete.")
        return FAILED
    if last.name != "done":
        return FAILED
    if not as_json and last.data.get("cached"):
        notes.print("From the cache; --fresh has it answered anew.")
    return 0 if last.data["status"] == "ANSWERED" else REFUSED


def _show_asked(searched_for: str | None) -> None:
    """What a follow-up was taken for."""
    if searched_for:
        notes.print(_harmless(f"Searched for: {searched_for}"), markup=False)


def _harmless(text: str) -> str:
    """The text without control characters: they could steer the terminal."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def _show_end(event: StreamEvent) -> None:
    data = event.data
    if event.name == "error":
        notes.print(f"\n{data['code']}: {escape(data['detail'] or data['title'])}")
    elif event.name == "revoked":
        notes.print(f"\nAccess was revoked ({data['reason']}): disregard the text above.")
    elif data["status"] == "ANSWERED":
        out.print("\n")
        _show_citations(data["citations"])
    else:
        notes.print(
            "No answer: the documents you may see do not hold enough evidence "
            f"({', '.join(data['reasons'])})."
        )
        _show_searched(data.get("searched") or {})


def _show_searched(searched: dict[str, Any]) -> None:
    """In one line; a server of before says nothing of it."""
    if not searched.get("passages"):
        return
    missing = ", ".join(searched["missing"])
    lacking = f"; none of the nearest has: {missing}" if missing else ""
    looked = f"Passages looked at in {searched['knowledge_base']}: {searched['passages']}{lacking}."
    notes.print(_harmless(looked), markup=False)


def _show_citations(citations: Iterable[dict[str, Any]]) -> None:
    for citation in citations:
        section = f" > {citation['section']}" if citation["section"] else ""
        page = f", page {citation['page']}" if citation["page"] else ""
        title = f"{citation['title']}{section}{page}"
        origin = f"{citation['uri']}, version {citation['document_version']}"
        out.print(f"[{citation['n']}] {title} ({origin})", markup=False)


def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    kb: KnowledgeBase,
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=100)] = 8,
    mode: Annotated[
        str | None, typer.Option("--mode", help="auto, vectorstore or sdk; else as the gateway is set.")
    ] = None,
    category: Annotated[str | None, typer.Option("--category")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Show the passages that a question would rest on. What the search was like goes to stderr."""
    with client(url, token) as gateway:
        answer = gateway.search(query, knowledge_base=kb, top_k=top_k, mode=mode, category=category)
    if as_json:
        for result in answer["results"]:
            print(json.dumps(result, ensure_ascii=False))
    else:
        out.print(_table(answer["results"]))
    _show_search(answer)
    return 0


def _table(results: list[dict[str, Any]]) -> Table:
    """The number that ranks is named by its scale; of two scales each number names its own."""
    labels = {result["score_label"] for result in results}
    table = Table(box=None, pad_edge=False, header_style="bold")
    ranking = labels.pop() if len(labels) == 1 else "score"
    for column in ("#", "document", "section", "distance", ranking, "found by"):
        table.add_column(column, overflow="fold")
    for place, result in enumerate(results, start=1):
        distance = "-" if result["score"] is None else f"{result['score']:.3f}"
        scale = "" if ranking == result["score_label"] else f" {result['score_label']}"
        table.add_row(
            str(place),
            escape(result["uri"]),
            escape(result["section"]),
            distance,
            f"{result['raw_score']:.4f}{scale}",
            result["hit_reason"],
        )
    return table


def _show_search(answer: dict[str, Any]) -> None:
    """A server of before knows no hints and no traces."""
    hints = ", ".join(f"{hint['value']} ({hint['kind']})" for hint in answer.get("hints", ()))
    if hints:
        notes.print(_harmless(f"hints, which raise passages and leave none out: {hints}"), markup=False)
    served = f"relevance: {answer['relevance']}, served by {answer['served_by']}"
    notes.print(f"{served}{_instead(answer['fallback'])}", markup=False)
    if answer.get("trace_id"):
        notes.print(f"trace: {answer['trace_id']}", markup=False)


def _instead(fallback: str | None) -> str:
    if not fallback:
        return ""
    return f" ({_FALLBACKS.get(fallback, f'the other path failed: {fallback}')})"
