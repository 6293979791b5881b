"""The state machines of versions, releases and tasks: held as tables, and these are the tables."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest

from gateway.adapters.sql.releases import config_from, config_text
from gateway.answer.evidence import GateSignals, decide
from gateway.errors import IllegalTransition, NotCalibrated
from gateway.ingest.task import TASK_TRANSITIONS, TaskState, check_task_transition
from gateway.release.model import (
    RELEASE_TRANSITIONS,
    VERSION_TRANSITIONS,
    EmbeddingSpace,
    GateFit,
    ReleaseState,
    RetrievalConfig,
    VersionState,
    check_release_transition,
    check_version_transition,
)

#: the legal steps, written down a second time: a change of a table must be meant
VERSION_STEPS = {
    "PENDING": "BUILDING FAILED",
    "BUILDING": "VALIDATING FAILED",
    "VALIDATING": "READY FAILED",
    "READY": "",
    "FAILED": "",
}
RELEASE_STEPS = {
    "PENDING": "BUILDING FAILED",
    "BUILDING": "VALIDATING FAILED",
    "VALIDATING": "READY FAILED",
    "READY": "ACTIVE RECLAIMED",
    "ACTIVE": "RETIRED",
    "RETIRED": "ACTIVE RECLAIMED",
    "FAILED": "RECLAIMED",
    "RECLAIMED": "",
}
TASK_STEPS = {
    "PENDING": "RUNNING CANCELLED FAILED",
    "RUNNING": "RUNNING PENDING SUCCEEDED FAILED CANCELLED",
    "SUCCEEDED": "",
    "FAILED": "",
    "CANCELLED": "",
}
MACHINES: list[tuple[type[StrEnum], Callable[[Any, Any], None], Mapping[str, str]]] = [
    (VersionState, check_version_transition, VERSION_STEPS),
    (ReleaseState, check_release_transition, RELEASE_STEPS),
    (TaskState, check_task_transition, TASK_STEPS),
]
STEPS = [
    pytest.param(
        check, before, after, after in steps[before].split(), id=f"{states.__name__}-{before}-{after}"
    )
    for states, check, steps in MACHINES
    for before in states
    for after in states
]


@pytest.mark.parametrize(("check", "before", "after", "legal"), STEPS)
def test_a_step_is_legal_only_when_the_table_says_so(
    check: Callable[[Any, Any], None], before: StrEnum, after: StrEnum, legal: bool
) -> None:
    """Every pair of states, once."""
    if legal:
        check(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"from {before} to {after}"):
            check(before, after)


@pytest.mark.parametrize(
    ("states", "table"),
    [
        (VersionState, VERSION_TRANSITIONS),
        (ReleaseState, RELEASE_TRANSITIONS),
        (TaskState, TASK_TRANSITIONS),
    ],
)
def test_a_table_names_every_state(
    states: type[StrEnum], table: Mapping[StrEnum, frozenset[StrEnum]]
) -> None:
    """A missing row would be a KeyError at the worst moment."""
    assert set(table) == set(states)


def test_nothing_goes_live_unvalidated() -> None:
    """ACTIVE is reached from READY and RETIRED only, READY from VALIDATING only."""
    into_active = {before for before, after in RELEASE_TRANSITIONS.items() if ReleaseState.ACTIVE in after}
    into_ready = {before for before, after in RELEASE_TRANSITIONS.items() if ReleaseState.READY in after}
    assert into_active == {ReleaseState.READY, ReleaseState.RETIRED}
    assert into_ready == {ReleaseState.VALIDATING}


SPACE_IDS = [
    "wordllama-256-v1",
    *("a-b", "a_b", "a/b", "a.b", "a b", "A-b", "a--b", "-a-b", "a-b-", "a-b--c", "a-b__c", "", "-", "_"),
    *("text-embedding-3/1024", 'a"b`c', "räum 🙂", "ra\u0308um 🙂", "raum", "模型", "模型二", "a\nb"),
    *("k" * 100, "k" * 101, "k" * 10_000, "k" * 10_001, "/" * 300),
]


@pytest.mark.parametrize("space_id", SPACE_IDS)
def test_a_collection_name_is_plain_whatever_the_space_is_called(space_id: str) -> None:
    """It ends up in a store's own name space, where quotes, umlauts and slashes don't belong."""
    name = EmbeddingSpace(space_id, "a-model", 8).collection
    assert re.fullmatch(r"chunks_[A-Za-z0-9_]{1,200}", name)


def test_no_two_spaces_share_a_collection() -> None:
    """Also not when their names differ by what a collection's name can't hold."""
    names = {EmbeddingSpace(space_id, "a-model", 8).collection for space_id in SPACE_IDS}
    assert len(names) == len(set(SPACE_IDS))
    imitated = EmbeddingSpace("a/b", "a-model", 8).collection.removeprefix("chunks_")
    for space_id in (imitated, imitated.replace("_", "-"), imitated.replace("__", "-")):
        assert EmbeddingSpace(space_id, "a-model", 8).collection not in names


def test_the_bundled_spaces_collection_keeps_its_name() -> None:
    """Data folders have it already."""
    assert EmbeddingSpace("wordllama-256-v1", "a-model", 256).collection == "chunks_wordllama_256_v1"


PLAIN = RetrievalConfig("v", 3.7, 11.5, 6.6, 0.2)
FUSED = GateFit((("coverage", 2.0),), 0.5, 0.1)
RERANKED = GateFit((("coverage", 1.0), ("top_similarity", 3.0)), 0.7, reranker="linear-1")


def test_each_order_of_passages_has_its_own_thresholds() -> None:
    """Those of another reranker are nobody's."""
    config = replace(PLAIN, gates=(RERANKED,))
    assert (config.reranker, config.calibrated) == ("linear-1", True)
    assert config.gate("linear-1") == RERANKED
    assert config.gate("linear-2") is None
    assert config.gate() == GateFit((("top_similarity", 3.7), ("coverage", 11.5)), 6.6, 0.2)
    assert replace(config, gates=(RERANKED, FUSED)).gate() == FUSED
    alone = replace(config, bias=None)
    assert (alone.gate(), alone.calibrated) == (None, True)
    assert (PLAIN.reranker, PLAIN.gate("linear-1")) == ("", None)


def test_a_script_without_thresholds_of_its_own_has_those_for_any() -> None:
    """In each order for itself; an order without any for others has none to lend."""
    han = replace(FUSED, bias=0.9, script="han")
    config = replace(PLAIN, gates=(FUSED, han, RERANKED))
    assert (config.gate("", "han"), config.gate("", "latin"), config.gate()) == (han, FUSED, FUSED)
    assert config.gate("linear-1", "han") == RERANKED
    alone = replace(PLAIN, bias=None, gates=(han,))
    assert (alone.gate("", "han"), alone.gate("", "latin"), alone.calibrated) == (han, None, False)


def test_a_stored_part_of_a_newer_version_decides_nothing() -> None:
    """It would move the threshold: such a release says not_calibrated until this program is newer too."""
    stored = json.loads(config_text(replace(PLAIN, gates=(FUSED, RERANKED))))
    stored["gates"][0]["weather"] = "rain"
    newer = config_from(json.dumps(stored))
    with pytest.raises(NotCalibrated):
        decide(newer, GateSignals(6, 0, 0.9, 1.0))
    assert decide(newer, GateSignals(6, 0, 0.9, 1.0, reranker="linear-1")).sufficient


HAN = replace(FUSED, script="han")


@pytest.mark.parametrize(
    "gates",
    [(), (FUSED,), (FUSED, RERANKED), (FUSED, HAN, RERANKED)],
    ids=["none", "fused", "both", "a script"],
)
def test_a_stored_config_is_read_back_as_it_was(gates: tuple[GateFit, ...]) -> None:
    """Down to what two of them are compared by."""
    config = replace(PLAIN, gates=gates)
    assert config_from(config_text(config)) == config
    assert hash(config_from(config_text(config))) == hash(config)
    assert ("gates" in config_text(config)) == bool(gates)
    assert config_text(config).count("script") == sum(bool(gate.script) for gate in gates)
