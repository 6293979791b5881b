"""Quotable: which piece of the evidence an extractive answer would say first."""

import numpy as np

from gateway.adapters.embedded.quotable import fits, quotables
from gateway.answer.evidence import Evidence
from tests.harness.chunks import sample_chunk


def ordered(question: str, *contents: str) -> list[str]:
    """The pieces of these passages, the best first, by words alone: all vectors are the same."""
    chunks = [sample_chunk(content) for content in contents]
    evidence = [Evidence(n, chunk, None, 0.0, "rrf", "") for n, chunk in enumerate(chunks, start=1)]
    options = quotables(question, evidence)
    worth = fits(question, options, np.ones((1 + len(options), 1), dtype=np.float32)).worth
    return [options[i].piece.text for i in np.argsort(-worth, kind="stable")]


def test_the_sentence_with_an_amount_goes_first_where_one_is_asked_for() -> None:
    """Of two that say the same of the deposit, whichever stands first."""
    cash, euros = "The deposit is paid in cash.", "The deposit is 80 EUR."
    assert ordered("How much is the deposit?", f"{cash} {euros}") == [euros, cash]
    assert ordered("Why is there a deposit?", f"{cash} {euros}") == [cash, euros]


def test_a_sentence_beside_the_one_that_names_it_goes_before_one_far_from_it() -> None:
    """What "it" is stands in the sentence before."""
    content = "Bells are loud. Sheds are grey. The cargo depot stands apart. It opens at dawn."
    said = ordered("Why is the cargo depot closed?", content)
    assert said.index("It opens at dawn.") < said.index("Bells are loud.")


def test_the_last_sentence_of_a_passage_is_no_neighbour_of_the_next_passage() -> None:
    """Nothing says that they are about the same."""
    said = ordered(
        "Why is the depot closed?", "Trams stop. Buses wait. The depot stands.", "It rains. Bells ring."
    )
    assert said.index("Trams stop.") < said.index("It rains.")


def test_of_equal_sentences_that_of_the_better_passage_goes_first() -> None:
    """The order of the evidence is worth something by itself."""
    first, second = "The depot sleeps.", "The depot rests."
    assert ordered("Why is the depot closed?", first, second) == [first, second]
    assert ordered("Why is the depot closed?", second, first) == [second, first]


def test_the_questions_language_outweighs_one_place() -> None:
    """Of a text and its translation."""
    chinese, english = "ERR_9: 磁盘已满。", "ERR_9: the disk is full."
    assert ordered("What is ERR_9?", chinese, english)[0] == english
    assert ordered("ERR_9 是指？", english, chinese)[0] == chinese
