"""The key of one question: what its answer depends on, collected from wherever it stands."""

import functools
import hashlib
import json
from dataclasses import asdict, dataclass

from gateway.answer.cache import AnswerKey
from gateway.answer.prompt import PROMPT_VERSION
from gateway.answer.question import Question
from gateway.answer.reuse.wording import same_wording
from gateway.context import RequestContext
from gateway.release.model import RetrievalConfig


@dataclass(frozen=True, slots=True)
class AnswerKeys:
    """``output_policy`` and ``gateway_digest`` are the same for all questions of a process; ``reranker`` is
    the version of the reranker that it has, '' for none.
    """

    output_policy: str
    gateway_digest: str
    reranker: str = ""

    def of(
        self, context: RequestContext, question: Question, *, model: str, max_output_tokens: int
    ) -> AnswerKey:
        """``model`` is the first choice for the release; the question is told so that it stands alone."""
        scope, release = context.scope, context.release
        told = [same_wording(question.own), same_wording(question.text)] if question.own else []
        return AnswerKey(
            tenant=scope.tenant,
            kb_id=scope.kb_id,
            kb_revision=release.kb_revision,
            embedding_space_id=release.space.space_id,
            scope_digest=scope.digest,
            acl_revision=scope.acl_revision,
            question_hash=_hash(same_wording(question.text)),
            conversation_digest=_hash(*told) if told else "",
            prompt_version=PROMPT_VERSION,
            retrieval_config_version=_version(release.config),
            reranker_version=self.reranker if self.reranker == release.config.reranker else "",
            model=f"{release.model}/{model}",
            language=question.answer_language,
            output_policy_version=self.output_policy,
            max_output_tokens=max_output_tokens,
            incarnation=scope.incarnation,
            gateway_digest=self.gateway_digest,
        )


@functools.lru_cache(maxsize=256)
def _version(config: RetrievalConfig) -> str:
    """With its numbers: who edits a calibration file may forget to call it another version."""
    return f"{config.version}/{_hash(json.dumps(asdict(config)))[:16]}"


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
