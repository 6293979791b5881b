"""The SSE byte decoder, the surrogate joiner and the chunk reader, without any network."""

import json

import pytest

from gateway.adapters.openai.chunk import ChunkReader
from gateway.adapters.openai.patience import Patience
from gateway.adapters.openai.sse import MAX_EVENT_BYTES, SseDecoder, SurrogateJoiner
from gateway.answer.model import ModelFinish, ModelUsage, TextPiece
from gateway.answer.prompt import Message, Prompt
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, UpstreamFailed

PROMPT = Prompt("q", (), (Message("user", "eight letters 你好"),), 16, "en")
STREAM = (
    "\ufeffdata: 一\n\n: comment\n\ndata:two\ndata: lines\nid: 7\nevent: x\n\ndata\n\ndata:  spaced\n\n"
    "retry: 5\n\nnonsense\n\ndata: 😀\u2028\x0b\x85\n\ndata: unfinished\n"
)
EVENTS = ["一", "two\nlines", "", " spaced", "😀\u2028\x0b\x85"]


def decoded(raw: bytes, size: int, max_event_bytes: int = MAX_EVENT_BYTES) -> list[str]:
    decoder = SseDecoder(max_event_bytes)
    reads = [raw[start : start + size] for start in range(0, len(raw), size)]
    return [event.decode() for read in reads for event in decoder.feed(read)]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 1000])
def test_events_are_the_same_for_every_split_and_line_end(size: int, line_end: str) -> None:
    """BOM, comments, joined data lines and unknown fields, cut at every byte."""
    assert decoded(STREAM.replace("\n", line_end).encode(), size) == EVENTS


def test_a_crlf_split_over_two_reads_is_one_line_end() -> None:
    """The LF that follows is swallowed, an empty read in between changes nothing."""
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\ndata: b\r\n") == []
    assert decoder.feed(b"\r\n") == [b"a\nb"]


def test_a_lone_cr_in_one_read_of_whole_lines_joins_two_data_lines() -> None:
    """The short way through the decoder must not take it for part of the data."""
    assert SseDecoder().feed(b"data: a\rdata: b\n\n") == [b"a\nb"]


def test_mixed_line_ends_and_a_bare_cr_pair_end_events() -> None:
    """CR CR and LF CR both make an empty line."""
    assert SseDecoder().feed(b"data: a\r\rdata: b\n\rdata: c\r\n\n") == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "raw",
    [b"data: " + b"x" * 101, b"x" * 101, b": " + b"x" * 101, b"data: " + b"x" * 60 + b"\ndata: " + b"y" * 60],
)
@pytest.mark.parametrize("size", [7, 1000])
def test_an_event_past_the_limit_fails(raw: bytes, size: int) -> None:
    """Whether in one line, in several, or in a comment that never ends."""
    with pytest.raises(UpstreamFailed):
        decoded(raw, size, max_event_bytes=100)


def test_many_events_together_may_be_larger_than_one_may_be() -> None:
    """The limit is that of one event."""
    assert len(SseDecoder(max_event_bytes=100).feed(b"data: 1234567890\n\n" * 50)) == 50


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        (["a\ud83d", "\ude00b"], ["a", "😀b"]),
        (["\ud83d", "", "\ude00"], ["", "", "😀"]),
        (["\ud83d", "x"], ["", "\ufffdx"]),
        (["\ude00x"], ["\ufffdx"]),
        (["\ud83d", "\ud83d\ude00"], ["", "\ufffd😀"]),
        (["一", "😀"], ["一", "😀"]),
        (["a\ud83d"], ["a"]),
    ],
)
def test_surrogate_halves_are_joined_or_replaced(texts: list[str], whole: list[str]) -> None:
    """A half at the end waits; one without its other half becomes U+FFFD."""
    joiner = SurrogateJoiner()
    assert [joiner.push(text) for text in texts] == whole
    assert joiner.flush() == ("\ufffd" if texts[-1].endswith("\ud83d") else "")


def chunk(content: str | None = None, finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": content, "refusal": None}, "finish_reason": finish, "new": [1]}
    return json.dumps({"choices": [choice], "usage": None, "unknown": {}, **more}).encode()


def test_usage_and_finish_come_last_whatever_came_first() -> None:
    """Usage of the model is taken as it states it."""
    reader = ChunkReader(PROMPT)
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    assert reader.read(json.dumps({"choices": [], "usage": usage}).encode()) is None
    assert reader.read(chunk("hi")) == TextPiece("hi")
    assert reader.read(chunk("", "length")) is None
    assert reader.end() == (ModelUsage(5, 2, estimated=False), ModelFinish("length"))


def test_without_usage_it_is_estimated() -> None:
    """By the estimate that prompts are fitted with, over the whole text however it came in pieces."""
    reader = ChunkReader(PROMPT)
    for piece in "你好 world":
        reader.read(chunk(piece))
    reader.read(chunk(finish="stop"))
    assert reader.end()[0] == ModelUsage(6, 4, estimated=True)


def test_a_half_at_the_very_end_is_replaced_before_the_finish() -> None:
    """Text never ends in a lone surrogate, nor loses one silently."""
    reader = ChunkReader(PROMPT)
    assert reader.read(b'{"choices":[{"delta":{"content":"a\\uD83D"}}]}') == TextPiece("a")
    assert reader.read(chunk(None, "stop")) == TextPiece("\ufffd")


@pytest.mark.parametrize(
    "event",
    [
        b"{",
        b"",
        b"[1]",
        b'{"choices":[{"delta":{"content":"\xff"}}]}',
        b'{"choices":[{"delta":{"content":7}}]}',
        b'{"error":{"message":"boom"}}',
        b'"\\ud83d' + b"[" * 100_000,
        b"[" * 100_000 + b'"\\ud83d"',
        chunk(None, "content_filter"),
        chunk(None, "tool_calls"),
    ],
)
def test_a_chunk_that_is_no_answer_fails_without_its_text(event: bytes) -> None:
    """Broken JSON, bad UTF-8, wrong shapes, errors, and ends that leave no answer."""
    with pytest.raises(UpstreamFailed) as failed:
        ChunkReader(PROMPT).read(event)
    assert "boom" not in failed.value.detail


@pytest.mark.parametrize(
    "event",
    [b"{}", b'{"choices":null}', b'{"choices":[{}]}', b'{"choices":[{"index":1,"delta":{"content":"no"}}]}'],
)
def test_a_chunk_without_text_of_the_first_choice_is_skipped(event: bytes) -> None:
    """Role chunks, empty chunks, other choices."""
    assert ChunkReader(PROMPT).read(event) is None


def test_an_answer_without_an_end_fails() -> None:
    """However much text came."""
    reader = ChunkReader(PROMPT)
    reader.read(chunk("text"))
    with pytest.raises(UpstreamFailed):
        reader.end()


def test_the_deadline_names_the_stage_that_ran_out() -> None:
    """The smaller of cap and deadline decides, and time outside a wait does not count."""
    patience = Patience(Deadline.after(60_000), first_token_cap_ms=1000, idle_cap_ms=5000)
    assert patience.next_wait()[0] == "first_token"
    patience.text_came()
    assert patience.next_wait()[0] == "idle"
    assert Patience(Deadline.after(500), 1000, 5000).next_wait()[0] == "total"
    with pytest.raises(DeadlineExceeded) as expired:
        Patience(Deadline.after(0), 1000, 5000).next_wait()
    assert expired.value.stage == "total"
    with pytest.raises(DeadlineExceeded) as expired:
        Patience(Deadline.after(60_000), 0, 5000).next_wait()
    assert expired.value.stage == "first_token"
