"""Golden cases: questions over a small corpus of the project's own, each with what must come back.

A case counts as passed when the right document is among the first ``within`` results, the breadcrumb of its
first hit holds ``section``, nothing comes from outside the asked ``category``, and the answer holds
``contains`` and cites the document; one marked ``refused`` when the answer is refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gateway.client import ApiError, GatewayClient
from gateway.evaluation.asking import Asker, answer_of, patiently, rank_of
from gateway.evaluation.filling import Document, fill
from gateway.evaluation.gateways import Target
from gateway.evaluation.labelled import LabelledDataUnusable
from gateway.evaluation.surroundings import surroundings

KNOWLEDGE_BASE = "golden"
_CORPUS = "corpus"
_TOP = 10


@dataclass(frozen=True, slots=True)
class Case:
    """One question. ``document`` is '' where nothing is to be found."""

    id: str
    kind: str
    query: str
    document: str = ""
    section: str = ""
    within: int = 1
    category: str | None = None
    contains: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Golden:
    """A folder of cases. ``categories``: document -> category."""

    folder: Path
    cases: tuple[Case, ...]
    categories: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """What came back. ``rank``: of the right document, 0 for none; ``breadcrumb``: whether its section is
    right, None where none is asked for; ``failed``: what was wrong, in words.
    """

    id: str
    kind: str
    results: int
    rank: int
    breadcrumb: bool | None
    relevance: str
    status: str
    failed: tuple[str, ...]


def read_golden(folder: Path) -> Golden:
    """``*.json`` with ``documents`` and ``cases``. Raises LabelledDataUnusable."""
    cases: list[Case] = []
    categories: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            raw = json.loads(path.read_text("utf-8"))
            cases += [Case(**entry) for entry in raw["cases"]]
            categories |= {entry["source"]: entry["category"] for entry in raw["documents"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LabelledDataUnusable(f"{path} holds no golden cases: {error!r}") from error
    strangers = {case.document for case in cases if case.document} - categories.keys()
    if not cases or strangers or len({case.id for case in cases}) != len(cases):
        raise LabelledDataUnusable(f"{folder} has no cases, an id twice, or unknown documents {strangers}")
    return Golden(folder, tuple(cases), categories)


def fill_golden(target: Target, golden: Golden) -> None:
    """The corpus into the knowledge base of the cases. Raises ApiError, EvaluationFailed."""
    corpus = golden.folder / _CORPUS
    documents = [
        Document(source, "text/markdown", (corpus / source).read_bytes(), category)
        for source, category in golden.categories.items()
    ]
    fill(target, KNOWLEDGE_BASE, documents)


def checked(target: Target, golden: Golden, seed: int, knowledge_base: str = "") -> dict[str, Any]:
    """Every case asked, nothing written. Raises ApiError, ServerUnreachable."""

    def ask(gateway: GatewayClient, case: Case) -> Result:
        return result_of(gateway, knowledge_base or KNOWLEDGE_BASE, case, golden.categories)

    results = Asker(target, 1).each(ask, golden.cases)
    crumbs = [result.breadcrumb for result in results if result.breadcrumb is not None]
    return {
        **surroundings(seed),
        "gateway": target.kind,
        "cases": len(results),
        "passed": sum(not result.failed for result in results),
        "found first": sum(result.rank == 1 for result in results),
        "results": sum(result.results for result in results),
        "without results": sum(result.results == 0 for result in results),
        "breadcrumb hit rate": round(sum(crumbs) / len(crumbs), 4) if crumbs else None,
        "each": [asdict(result) for result in results],
    }


def result_of(
    gateway: GatewayClient, knowledge_base: str, case: Case, categories: Mapping[str, str]
) -> Result:
    """An error of the gateway fails the case and no other."""
    try:
        found = patiently(
            lambda: gateway.search(
                case.query, knowledge_base=knowledge_base, top_k=_TOP, category=case.category
            )
        )
        text, done = answer_of(gateway, knowledge_base, case.query)
    except ApiError as error:
        return Result(case.id, case.kind, 0, 0, None, "", error.problem_code, (error.problem_code,))
    results = found["results"]
    rank = rank_of(results, {case.document})
    breadcrumb = _breadcrumb(case, results)
    failed = [*_failed_search(case, results, rank, breadcrumb, categories), *_failed_answer(case, text, done)]
    status = str(done.get("status", done.get("code")))
    relevance = str(found["relevance"])
    return Result(case.id, case.kind, len(results), rank, breadcrumb, relevance, status, tuple(failed))


def _breadcrumb(case: Case, results: Sequence[Mapping[str, Any]]) -> bool | None:
    if not case.section:
        return None
    sections = (str(one["section"]) for one in results if one["uri"] == case.document)
    return case.section in next(sections, "")


def _failed_search(
    case: Case,
    results: Sequence[Mapping[str, Any]],
    rank: int,
    breadcrumb: bool | None,
    categories: Mapping[str, str],
) -> list[str]:
    failed = []
    if case.document and not 0 < rank <= case.within:
        failed.append(f"the document is at rank {rank}, wanted within {case.within}")
    if breadcrumb is False:
        failed.append(f"the breadcrumb is not {case.section}")
    foreign = [one["uri"] for one in results if case.category not in (None, categories.get(one["uri"]))]
    if foreign:
        failed.append(f"from outside the category: {foreign}")
    return failed


def _failed_answer(case: Case, text: str, done: Mapping[str, Any]) -> list[str]:
    """A case with a category has no answer to judge: questions are asked of all of them."""
    status = done.get("status", done.get("code"))
    if case.refused:
        return [] if status == "REFUSED_NO_EVIDENCE" else [f"not refused but {status}"]
    if not case.contains:
        return []
    if status != "ANSWERED":
        return [f"not answered but {status}"]
    failed = [] if case.contains in text else [f"the answer does not say {case.contains!r}"]
    if case.document not in {citation["uri"] for citation in done["citations"]}:
        failed.append("the document is not cited")
    return failed


def markdown(found: Mapping[str, Any]) -> str:
    """The counts, and a line a case."""
    rate = found["breadcrumb hit rate"]
    head = [
        f"{found['passed']} of {found['cases']} cases passed on the {found['gateway']} gateway; the right "
        f"document first in {found['found first']}; {found['results']} results, none at all in "
        f"{found['without results']} cases; breadcrumb hit rate {'-' if rate is None else f'{rate:.3f}'}.",
        "",
        "| case | kind | results | rank | breadcrumb | relevance | status | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    crumbs = {True: "right", False: "wrong", None: ""}
    lines = [
        f"| {one['id']} | {one['kind']} | {one['results']} | {one['rank'] or '-'} "
        f"| {crumbs[one['breadcrumb']]} | {one['relevance']} | {one['status']} "
        f"| {'; '.join(one['failed']) or 'passed'} |"
        for one in found["each"]
    ]
    return "\n".join([*head, *lines, ""])
