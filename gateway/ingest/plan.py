"""A release in the making: the documents it takes in, their term statistics, its activation."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.access.authorizer import DocumentRef
from gateway.ingest.version import ManifestEntry
from gateway.release.model import (
    EmbeddingSpace,
    RetrievalConfig,
    RetrievalRelease,
)
from gateway.retrieval.lexicon import ALWAYS, Validity


@dataclass(frozen=True, slots=True)
class PlannedDocument:
    """A document version as a release takes it in. ``acl_class`` is the document's current class."""

    ref: DocumentRef
    source: str
    media_type: str
    original_key: str
    title: str
    uri: str
    category: str
    valid_from: int | None
    valid_until: int | None
    sensitivity: int
    author: str
    approval: str
    risk: tuple[str, ...]
    acl_class: int
    parser_version: str
    splitter_version: str
    chunks_key: str
    manifest: tuple[ManifestEntry, ...]

    @property
    def validity(self) -> Validity:
        return Validity.of(self.valid_from, self.valid_until)


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """A release being built: an immutable list of documents, fixed when the build began.

    ``manifest_hash`` covers every (chunk_id, content_hash, acl_class, approval). ``unchanged_release`` is set
    when the active release holds the same versions under the same classes and approvals, with the same space,
    config and model: then nothing needs building, and no documents are listed.
    """

    release_id: str
    tenant: str
    kb_id: str
    knowledge_base: str
    kb_revision: str
    base_sequence: int
    revocation_epoch: int
    space: EmbeddingSpace
    config: RetrievalConfig
    manifest_hash: str
    documents: tuple[PlannedDocument, ...]
    unchanged_release: str | None
    model: str = ""

    def as_release(self) -> RetrievalRelease:
        """How the validator reads the revision before anyone else may."""
        return RetrievalRelease(
            release_id=self.release_id,
            tenant=self.tenant,
            kb_id=self.kb_id,
            knowledge_base=self.knowledge_base,
            kb_revision=self.kb_revision,
            sequence=self.base_sequence,
            space=self.space,
            collection=self.space.collection,
            config=self.config,
            model=self.model,
        )


@dataclass(frozen=True, slots=True)
class ClassTerms:
    """Term statistics of the passages of one ACL class and validity in one revision: how many they are, and
    term -> passages with it.
    """

    acl_class: int
    passages: int
    frequencies: Mapping[str, int]
    validity: Validity = ALWAYS


NO_EARLIER_MODEL = "there is no earlier model to go back to"


def not_configured(model: str) -> str:
    """Why nobody can go back to this model adapter."""
    return f"the model before, {model}, is no longer configured"


@dataclass(frozen=True, slots=True)
class Activation:
    knowledge_base: str
    knowledge_revision: str
    release_sequence: int
