"""The bundled gate over the bundled reranker: small knowledge bases, and ones that repeat themselves."""

from collections import Counter
from collections.abc import Sequence

import pytest

from gateway.adapters.embedded.embedder import CALIBRATION, BundledEmbedder
from gateway.adapters.embedded.rerank import LinearReranker
from gateway.adapters.embedded.weights import bundled_weights
from gateway.answer.evidence import GateDecision, decide
from gateway.answer.reranking import in_order
from gateway.answer.search import SearchResult
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.chunk import embedded_text
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of
from tests.harness.chunks import sample_chunk

Texts = tuple[str, ...]
ENGLISH: Texts = (
    "The upload limit is 42 megabytes for each file. Larger files are refused.",
    "Refunds are paid within 14 days. Digital goods are not refundable after the download.",
    "The on-call engineer rotates the certificates of the payment service every quarter.",
)
CHINESE: Texts = (
    "每个文件的上传上限是42兆字节,更大的文件会被拒绝。",
    "退款在14天内支付,数字商品下载后不予退款。",
    "值班工程师每个季度轮换支付服务的证书。",
)


@pytest.fixture(scope="module")
def embedder() -> BundledEmbedder:
    return BundledEmbedder.load_now()


def decided(embedder: BundledEmbedder, question: str, texts: Sequence[str]) -> GateDecision:
    """Of a knowledge base that has these passages and no other, each under a title of its own."""
    chunks = [
        sample_chunk(text, name=f"note {n}", title=f"Note {n}", section="") for n, text in enumerate(texts)
    ]
    embedded = [embedded_text(chunk.title, chunk.section, chunk.content) for chunk in chunks]
    rows = embedder.vectors([question, *embedded])
    found = [
        Candidate(chunk, float(row @ rows[0]), dense=True, raw_score=0.0, score_label="rrf", hit_reason="")
        for chunk, row in zip(chunks, rows[1:], strict=True)
    ]
    counted = Counter(term for text in embedded for term in set(terms_of(text)))
    statistics = TermStatistics(len(embedded), counted)
    weights = bundled_weights()
    scores = LinearReranker(embedder, weights).scores_now(question, found, statistics)
    result = SearchResult(question, in_order(found, scores), Counter(), statistics, reranker=weights.version)
    return decide(CALIBRATION, result.signals(result.evidence(6)))


@pytest.mark.parametrize(
    ("texts", "question", "outside"),
    [
        (ENGLISH, "What is the upload limit for each file?", "Who won the football world cup?"),
        (CHINESE, "每个文件的上传上限是多少？", "谁赢得了足球世界杯？"),
    ],
    ids=["english", "chinese"],
)
@pytest.mark.parametrize("copies", [0, 1, 5])
@pytest.mark.parametrize("size", [1, 3])
def test_few_passages_and_repeated_ones_are_enough(
    embedder: BundledEmbedder, texts: Texts, question: str, outside: str, copies: int, size: int
) -> None:
    """The gate needs no background of other passages, and no margin over the next one."""
    held = [*texts[:size], *texts[:1] * copies]
    assert decided(embedder, question, held).sufficient
    assert not decided(embedder, outside, held).sufficient
