"""Calibration files: read strictly, for one space; and a space without one answers nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from eval.gate import main, write
from gateway.adapters.embedded.calibration import calibration_of, calibration_text, load_calibration
from gateway.adapters.embedded.embedder import CALIBRATION, SPACE
from gateway.adapters.sql.releases import config_from, config_text
from gateway.answer.evidence import GateSignals, decide
from gateway.errors import ConfigurationError, NotCalibrated
from gateway.release.model import EmbeddingSpace, GateFit, RetrievalConfig
from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import World

OTHER = EmbeddingSpace("other-8-abc", "other", 8)
GOOD: dict[str, Any] = {
    "space_id": OTHER.space_id,
    "version": "other-8-abc/gate-1",
    "w_similarity": 8.5,
    "w_coverage": 7,
    "bias": 8.69,
    "min_coverage": 0.25,
}


def file_with(folder: Path, content: str | bytes) -> Path:
    path = folder / "calibration.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_good_file_is_the_config_of_its_space(tmp_path: Path) -> None:
    """Number for number."""
    path = file_with(tmp_path, json.dumps(GOOD))
    config = RetrievalConfig("other-8-abc/gate-1", 8.5, 7.0, 8.69, 0.25)
    assert load_calibration(path, OTHER) == config
    assert calibration_of(OTHER, path) == config


GATE: dict[str, Any] = {
    "reranker": "linear-1",
    "weights": {"top_similarity": 2, "match": 8.5},
    "bias": 4,
    "min_coverage": 0.2,
}


def test_a_file_may_hold_thresholds_for_each_order(tmp_path: Path) -> None:
    """The four numbers stay for the order that has none of its own; what is written is read back."""
    fused = {**GATE, "reranker": "", "weights": {"sentence_coverage": 3.0}, "bias": 1.5}
    config = load_calibration(file_with(tmp_path, json.dumps({**GOOD, "gates": [GATE, fused]})), OTHER)
    assert config.gates == (
        GateFit((("top_similarity", 2.0), ("match", 8.5)), 4.0, 0.2, "linear-1"),
        GateFit((("sentence_coverage", 3.0),), 1.5, 0.2),
    )
    assert load_calibration(file_with(tmp_path, calibration_text(config, OTHER)), OTHER) == config
    assert config_from(config_text(config)) == config


@pytest.mark.parametrize(
    "changed",
    [
        {"reranker": 1},
        {"reranker": "r" * 300},
        {"weights": {}},
        {"weights": []},
        {"weights": {"vibes": 1.0}},
        {"weights": {"match": -1.0}},
        {"weights": {"match": "1"}},
        {"weights": {"match": float("nan")}},
        {"bias": 0},
        {"bias": 11},
        {"bias": float("nan")},
        {"min_coverage": 2},
        {"weights": {"rerank_score": 1.0}, "bias": -1},
        {"script": "runes"},
        {"script": None},
        {"script": ["han"]},
        {"note": "one key too many"},
    ],
    ids=str,
)
def test_a_gate_with_a_wrong_value_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    """A gate that is read wrongly lets everything pass."""
    with pytest.raises(ConfigurationError):
        load_calibration(file_with(tmp_path, json.dumps({**GOOD, "gates": [GATE | changed]})), OTHER)


def test_a_file_may_hold_thresholds_for_each_script(tmp_path: Path) -> None:
    """A reranker's number has no upper end, so the bias needn't be below the sum of the weights."""
    han = GATE | {"script": "han", "weights": {"match": 1.0, "rerank_score": 0.5}, "bias": 14.5}
    config = load_calibration(file_with(tmp_path, json.dumps({**GOOD, "gates": [GATE, han]})), OTHER)
    assert config.gate("linear-1", "han") == GateFit(
        (("match", 1.0), ("rerank_score", 0.5)), 14.5, 0.2, "linear-1", "han"
    )
    assert config.gate("linear-1", "latin") == config.gate("linear-1") != config.gate("linear-1", "han")
    assert load_calibration(file_with(tmp_path, calibration_text(config, OTHER)), OTHER) == config
    assert config_from(config_text(config)) == config


_HAN = GATE | {"script": "han"}


@pytest.mark.parametrize(
    "gates",
    [
        {},
        "none",
        [GATE, GATE],
        [1],
        [{}],
        [_HAN],
        [GATE, _HAN, _HAN | {"bias": 5}],
        [GATE, GATE | {"script": "runes"}],
    ],
    ids=str,
)
def test_a_list_of_gates_that_is_none_is_refused(tmp_path: Path, gates: object) -> None:
    """Nor two for one order and script, nor one for a script without one for the others."""
    with pytest.raises(ConfigurationError):
        load_calibration(file_with(tmp_path, json.dumps({**GOOD, "gates": gates})), OTHER)


def test_only_the_bundled_space_has_a_calibration_built_in(tmp_path: Path) -> None:
    """A file that is named counts before it, and a space that merely looks alike has none."""
    assert calibration_of(SPACE, None) == CALIBRATION
    assert calibration_of(OTHER, None) is None
    assert calibration_of(EmbeddingSpace(SPACE.space_id, "another", 256), None) is None
    mine = file_with(tmp_path, json.dumps({**GOOD, "space_id": SPACE.space_id}))
    assert calibration_of(SPACE, mine) == load_calibration(mine, SPACE) != CALIBRATION


@pytest.mark.parametrize(
    "changed",
    [
        {"space_id": "other-8-abd"},
        {"space_id": SPACE.space_id},
        {"space_id": None},
        {"version": ""},
        {"version": 1},
        {"version": "v" * 300},
        {"version": "a\nb"},
        {"w_similarity": "8.5"},
        {"w_similarity": -1},
        {"w_coverage": True},
        {"w_coverage": None},
        {"w_coverage": [7]},
        {"bias": float("nan")},
        {"bias": float("inf")},
        {"bias": 10**400},
        {"bias": 0},
        {"bias": -1},
        {"bias": 15.6},
        {"bias": None},
        {"min_coverage": -0.1},
        {"min_coverage": 1.1},
        {"note": "one key too many"},
    ],
    ids=str,
)
def test_a_file_with_a_wrong_value_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Each alone; the message names the file."""
    path = file_with(tmp_path, json.dumps(GOOD | changed))
    with pytest.raises(ConfigurationError) as refused:
        load_calibration(path, OTHER)
    assert refused.value.reason == "calibration_unusable"
    assert str(path) in refused.value.detail


@pytest.mark.parametrize("missing", GOOD)
def test_a_file_without_a_value_is_refused(tmp_path: Path, missing: str) -> None:
    """Nothing is guessed."""
    path = file_with(tmp_path, json.dumps({name: value for name, value in GOOD.items() if name != missing}))
    with pytest.raises(ConfigurationError, match="has to hold"):
        load_calibration(path, OTHER)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        b"\xff\xfe",
        "[" * 60_000,
        json.dumps(GOOD)[:-1] + ', "bias": 1}',
        json.dumps(GOOD) + " " * 70_000,
    ],
    ids=["empty", "half", "list", "null", "no text", "deep", "a name twice", "large"],
)
def test_what_is_no_calibration_at_all_is_refused(tmp_path: Path, content: str | bytes) -> None:
    """Whatever it is instead."""
    with pytest.raises(ConfigurationError) as refused:
        load_calibration(file_with(tmp_path, content), OTHER)
    assert refused.value.reason == "calibration_unusable"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Missing, or a folder."""
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(ConfigurationError, match="can't be read"):
            load_calibration(path, OTHER)


def test_what_the_command_writes_is_read_back_and_a_useless_fit_is_not_written(tmp_path: Path) -> None:
    """Whole or not at all: the file that was there stays."""
    config = RetrievalConfig("other-8-abc/gate-2", 1.5, 2.5, 1.0, 0.2)
    write(tmp_path / "fit.json", config, OTHER)
    assert load_calibration(tmp_path / "fit.json", OTHER) == config
    with pytest.raises(ConfigurationError):
        write(tmp_path / "fit.json", RetrievalConfig("v", -1.5, 2.5, 1.0), OTHER)
    assert load_calibration(tmp_path / "fit.json", OTHER) == config


@pytest.mark.parametrize("missing", ["EMBEDDING_NAME", "EMBEDDING_DIMENSION", "RERANK_NAME"])
def test_the_command_wants_an_endpoint_whole(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would quietly fit another model; nothing is read before."""
    whole = {"EMBEDDING_BASE_URL": "http://h/v1", "EMBEDDING_NAME": "m", "EMBEDDING_DIMENSION": "8"}
    whole |= {"RERANK_URL": "http://h/rerank", "RERANK_NAME": "r"}
    for name, value in whole.items():
        if name != missing:
            monkeypatch.setenv(f"GATEWAY_{name}", value)
    with pytest.raises(ConfigurationError, match=f"GATEWAY_{missing} is not set"):
        main(["--data", "nowhere"])


def test_a_release_without_thresholds_decides_nothing() -> None:
    """Neither yes nor no."""
    config = RetrievalConfig.uncalibrated(OTHER)
    assert not config.calibrated
    assert CALIBRATION.calibrated
    for signals in (GateSignals(6, 0, 0.9, 1.0), GateSignals(0, 0, None, 0.0)):
        with pytest.raises(NotCalibrated):
            decide(config, signals)


def test_stored_configs_of_before_are_read_as_they_were() -> None:
    """And written as they were, so that a release whose config is the same is still found unchanged."""
    old = '{"bias":6.6,"min_coverage":0.2,"version":"v","w_coverage":11.5,"w_similarity":3.7}'
    assert config_from(old) == RetrievalConfig("v", 3.7, 11.5, 6.6, 0.2)
    assert json.loads(config_text(config_from(old))) == json.loads(old)
    unfitted = RetrievalConfig.uncalibrated(OTHER)
    assert config_from(config_text(unfitted)) == unfitted


async def test_an_uncalibrated_space_imports_but_answers_no_question() -> None:
    """503 not_calibrated, before the question is embedded and before a model is asked."""
    world = World(config=RetrievalConfig.uncalibrated(OTHER))
    task = await world.learn({"limits.md": "The upload limit is 42 megabytes."})
    assert task.state == "SUCCEEDED"
    async with serving_world(world) as port:
        async with connected(port) as wire:
            await wire.ask(world.token(), "upload limit?")
            head, problem = await wire.read_head(), await wire.json()
    assert (head.status, problem["code"]) == (503, "not_calibrated")
    assert (world.model.called, world.embedder.calls) == (0, 0)
    world.assert_nothing_held()
