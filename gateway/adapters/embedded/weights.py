"""Ranking weights: what the linear reranker multiplies its features by, fitted for one space each."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from gateway.adapters.embedded.choice import WORDLLAMA, model_of
from gateway.adapters.embedded.features import FEATURES
from gateway.errors import ConfigurationError
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.chunk import stable_hash


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """Fitted for similarities of one space; ``values`` are in the order of FEATURES. ``version`` ends in
    their digest: thresholds are stored for it, and other weights make another order.
    """

    version: str
    space_id: str
    values: tuple[float, ...]


def bundled_weights() -> RankingWeights:
    """Those of the default embedder. Raises ConfigurationError."""
    return _packaged(WORDLLAMA.name)


def weights_of(space: EmbeddingSpace) -> RankingWeights | None:
    """Those in the package, as ``python -m eval.ranking`` wrote them; None for a space without any."""
    model = model_of(space)
    return None if model is None else _packaged(model.name)


def weights_from(text: str) -> RankingWeights:
    """Raises ConfigurationError ``ranking_weights_unusable`` unless every feature has one finite number."""
    try:
        stored = json.loads(text)
        weights: Mapping[str, float] = stored["weights"]
        values = tuple(float(weights[name]) for name in FEATURES)
        version = f"{stored['version']}-{stable_hash(*FEATURES, *map(str, values))[:8]}"
        found = RankingWeights(version, str(stored["space_id"]), values)
    except (ValueError, KeyError, TypeError, AttributeError):
        found = None
    if found is None or len(weights) != len(FEATURES) or not all(map(math.isfinite, found.values)):
        raise ConfigurationError("ranking_weights_unusable", f"needs one number for each of {FEATURES}")
    return found


def _packaged(name: str) -> RankingWeights:
    return weights_from(
        resources.files(__package__).joinpath(f"ranking_weights_{name}.json").read_text("utf-8")
    )
