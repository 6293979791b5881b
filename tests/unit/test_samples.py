"""The sample knowledge bases agree with themselves."""

import re
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

import gateway.samples
from gateway.access.classes import Acl
from gateway.samples import SampleDocument, SampleQuestion, epoch_seconds, load_samples

SAMPLES = load_samples()
BY_PATH = {document.path: document for document in SAMPLES.documents}
ANSWERED = [question for question in SAMPLES.questions if question.expect == "ANSWERED"]
TODAY = datetime.now(UTC).date()


def acl_of(document: SampleDocument) -> Acl:
    return Acl.parse(document.allow, document.deny)


def principals_of(name: str) -> frozenset[str]:
    user = SAMPLES.users[name]
    return frozenset({"public", f"user:{user.subject}", *(f"group:{group}" for group in user.groups)})


def valid_today(document: SampleDocument) -> bool:
    begun = document.valid_from is None or document.valid_from <= TODAY
    return begun and (document.valid_until is None or document.valid_until > TODAY)


def visible_to(name: str) -> list[SampleDocument]:
    tenant, principals = SAMPLES.users[name].tenant, principals_of(name)
    return [d for d in SAMPLES.documents if d.tenant == tenant and acl_of(d).permits(principals)]


def question_id(question: SampleQuestion) -> str:
    return f"{question.user}: {question.question}"


def test_the_manifest_names_exactly_the_files() -> None:
    """A forgotten entry would be a document nobody imports; a stale one would break the demo."""
    root = Path(gateway.samples.__file__).parent
    kinds = {".md", ".html", ".txt"}
    on_disk = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.suffix in kinds}
    assert set(BY_PATH) == on_disk
    assert len(BY_PATH) == len(SAMPLES.documents)


@pytest.mark.parametrize("document", SAMPLES.documents, ids=lambda d: d.path)
def test_a_document_is_readable_and_its_metadata_is_well_formed(document: SampleDocument) -> None:
    """UTF-8 text, a known media type, a parseable ACL, real dates."""
    text = document.read().decode("utf-8")
    assert len(text) > 900
    assert document.media_type in {"text/markdown", "text/html", "text/plain"}
    assert acl_of(document).allow
    assert 0 <= document.sensitivity <= 3
    assert document.approval in {"approved", "unreviewed"}
    assert (document.language == "zh") == bool(re.search(r"[\u4e00-\u9fff]{2}", text))
    for day in (document.valid_from, document.valid_until):
        assert day is None or isinstance(day, date)
    assert document.author
    assert document.category


@pytest.mark.parametrize("question", ANSWERED, ids=question_id)
def test_an_answer_stands_in_a_document_that_the_asker_may_see_today(question: SampleQuestion) -> None:
    """Otherwise the acceptance run would ask for something impossible."""
    document = BY_PATH[question.document]
    assert question.answer_contains
    assert question.answer_contains in document.read().decode("utf-8")
    assert document in visible_to(question.user)
    assert valid_today(document)


def test_a_refusal_names_neither_document_nor_answer() -> None:
    """The two outcomes are told apart by the manifest alone."""
    for question in SAMPLES.questions:
        assert question.user in SAMPLES.users
        assert question.expect in {"ANSWERED", "REFUSED_NO_EVIDENCE"}
        if question.expect == "REFUSED_NO_EVIDENCE":
            assert (question.document, question.answer_contains) == ("", "")


def test_what_one_asker_gets_and_another_does_not_is_hidden_from_the_other() -> None:
    """The pairs prove permissions only when the other asker really can't see the answering document."""
    answers = {question.question: question for question in ANSWERED}
    pairs = [
        (answers[q.question], q.user)
        for q in SAMPLES.questions
        if q.expect == "REFUSED_NO_EVIDENCE" and q.question in answers
    ]
    assert len(pairs) >= 7
    for answered, refused in pairs:
        assert answered.document not in {document.path for document in visible_to(refused)}


def test_there_is_a_document_that_has_expired_and_one_that_is_yet_to_come() -> None:
    """Neither may ever be cited, and both are permitted to everybody, so only validity hides them."""
    hidden = Counter(document.tenant for document in SAMPLES.documents if not valid_today(document))
    assert hidden == {"globex": 2}
    assert all(document.allow == ("public",) for document in SAMPLES.documents if not valid_today(document))


def test_a_day_begins_at_midnight_utc() -> None:
    """Validity goes to the catalog in seconds since the epoch."""
    assert epoch_seconds(date(2025, 1, 1)) == 1_735_689_600
    assert epoch_seconds(None) is None


def test_a_document_knows_tenant_knowledge_base_and_source() -> None:
    """The path alone says where a document belongs."""
    document = BY_PATH["acme/operations/zh/kafka-lag.md"]
    parts = (document.tenant, document.knowledge_base, document.source)
    assert parts == ("acme", "operations", "zh/kafka-lag.md")
