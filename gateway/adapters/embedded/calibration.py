"""Calibration: the evidence gate's thresholds of one embedding space, built in or read from a file."""

import contextlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gateway.adapters.embedded.choice import model_of
from gateway.adapters.embedded.embedder import CALIBRATION, SPACE
from gateway.answer.evidence import UNBOUNDED, WEIGHED
from gateway.errors import ConfigurationError
from gateway.release.model import EmbeddingSpace, GateFit, RetrievalConfig
from gateway.retrieval.script import SCRIPTS

_NUMBERS = ("w_similarity", "w_coverage", "bias", "min_coverage")
_KEYS = {"space_id", "version", *_NUMBERS}
_GATE_KEYS = {"reranker", "weights", "bias", "min_coverage"}
#: left out where it is ''
_SCRIPT = "script"
_MAX_BYTES = 64 * 1024
_MAX_VERSION = 200


def calibration_of(space: EmbeddingSpace, path: Path | None) -> RetrievalConfig | None:
    """The file's when one is named, else the one that comes with the program for this space, else None.

    Raises ConfigurationError ``calibration_unusable``.
    """
    if path is not None:
        return load_calibration(path, space)
    model = model_of(space)
    if model is None or space == SPACE:
        return None if model is None else CALIBRATION
    built_in = Path(__file__).with_name(f"calibration_{model.name}.json")
    return load_calibration(built_in, space) if built_in.exists() else None


def load_calibration(path: Path, space: EmbeddingSpace) -> RetrievalConfig:
    """Reads what ``qa-gateway eval --calibrate FILE`` wrote for this very space.

    Raises ConfigurationError ``calibration_unusable`` for anything else: a gate that is read wrongly lets
    everything pass.
    """
    found = _object(path)
    if found.keys() - {"gates"} != _KEYS:
        _refuse(path, f"has to hold {', '.join(sorted(_KEYS))} and nothing else")
    if found["space_id"] != space.space_id:
        _refuse(path, f"is of the space {found['space_id']!r}, not of {space.space_id!r}")
    version = found["version"]
    if not isinstance(version, str) or not version.isprintable() or not 0 < len(version) <= _MAX_VERSION:
        _refuse(path, "has a version that is no short text")
    w_similarity, w_coverage, bias, min_coverage = (_number(path, found, name) for name in _NUMBERS)
    if min(w_similarity, w_coverage) < 0 or not 0 <= min_coverage <= 1:
        _refuse(path, "has a weight below 0, or a min_coverage that is no share")
    if not 0 < bias <= w_similarity + w_coverage:
        _refuse(path, "has a bias that lets every question pass, or none")
    return RetrievalConfig(version, w_similarity, w_coverage, bias, min_coverage, _gates(path, found))


def calibration_text(config: RetrievalConfig, space: EmbeddingSpace) -> str:
    """What ``load_calibration`` reads back."""
    gates = [
        {
            "reranker": gate.reranker,
            "weights": dict(gate.weights),
            "bias": gate.bias,
            "min_coverage": gate.min_coverage,
            **({_SCRIPT: gate.script} if gate.script else {}),
        }
        for gate in config.gates
    ]
    plain = {name: getattr(config, name) for name in ("version", *_NUMBERS)}
    return json.dumps({"space_id": space.space_id, **plain, "gates": gates}, indent=2) + "\n"


def _gates(path: Path, found: dict[str, object]) -> tuple[GateFit, ...]:
    """Files of before have none."""
    listed = found.get("gates", [])
    if not isinstance(listed, list):
        _refuse(path, "has gates that are no list")
    gates = tuple(_gate(path, gate) for gate in listed)
    if len({(gate.reranker, gate.script) for gate in gates}) != len(gates):
        _refuse(path, "has two gates for one order and script")
    if {gate.reranker for gate in gates if not gate.script} != {gate.reranker for gate in gates}:
        _refuse(path, "has an order without a gate for other scripts")
    return gates


def _gate(path: Path, found: object) -> GateFit:
    if not isinstance(found, dict) or found.keys() - {_SCRIPT} != _GATE_KEYS:
        _refuse(path, f"has a gate that doesn't hold {', '.join(sorted(_GATE_KEYS))}")
    reranker, weighed, script = found["reranker"], found["weights"], found.get(_SCRIPT, "")
    if not isinstance(script, str) or script not in ("", *SCRIPTS):
        _refuse(path, f"has a gate for another script than {', '.join(SCRIPTS)}")
    if not isinstance(reranker, str) or len(reranker) > _MAX_VERSION:
        _refuse(path, "has a gate whose reranker is no short text")
    if not isinstance(weighed, dict) or not weighed or not weighed.keys() <= set(WEIGHED):
        _refuse(path, f"has a gate that weighs something else than {', '.join(WEIGHED)}")
    weights = tuple((name, _number(path, weighed, name)) for name in weighed)
    bias, min_coverage = (_number(path, found, name) for name in ("bias", "min_coverage"))
    if min(weight for _, weight in weights) < 0 or not 0 <= min_coverage <= 1:
        _refuse(path, "has a gate with a weight below 0, or a min_coverage that is no share")
    if not _separates(weights, bias):
        _refuse(path, "has a gate with a bias that lets every question pass, or none")
    return GateFit(weights, bias, min_coverage, reranker, script)


def _separates(weights: Sequence[tuple[str, float]], bias: float) -> bool:
    """Whether something can be below the bias, and something above; on a scale without end that may be."""
    endless = any(weight for name, weight in weights if name in UNBOUNDED)
    return bias > 0 and (endless or bias <= sum(weight for _, weight in weights))


def _object(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        _refuse(path, f"can't be read: {error.strerror}")
    if len(content) > _MAX_BYTES:
        _refuse(path, "is too large")
    found: object = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content, object_pairs_hook=_no_duplicates, parse_int=float)
    if not isinstance(found, dict):
        _refuse(path, "is no JSON object with each name once")
    return found


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _number(path: Path, found: dict[str, object], name: str) -> float:
    value = found[name]
    if not isinstance(value, float) or not math.isfinite(value):
        _refuse(path, f"has a {name} that is no number")
    return value


def _refuse(path: Path, why: str) -> NoReturn:
    raise ConfigurationError("calibration_unusable", f"the calibration file {path} {why}")
