"""What an act's audit entry names of its outcome, whichever catalog keeps it."""

from collections.abc import Mapping

from gateway.ingest.plan import Activation
from gateway.ingest.uploads import Accepted
from gateway.stream.revocation import RevocationRecord

Answer = Accepted | Activation | RevocationRecord


def outcome(answer: Answer) -> Mapping[str, object]:
    """Ids and numbers only."""
    if isinstance(answer, RevocationRecord):
        return {"revocation": answer.revocation_id}
    if isinstance(answer, Activation):
        return {"sequence": answer.release_sequence}
    documents = [document.document_id for document in answer.documents]
    return {"task": answer.task_id} | ({"documents": documents} if documents else {})
