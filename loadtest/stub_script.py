"""Behaviour: what the scripted model does with one call, as JSON that a test or a load run can send."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

_MARKER = re.compile(r"@@stub(\{.*?\})@@", re.DOTALL)
_PASSAGE = re.compile(
    r"^passage (\d+) \(.*?\)\n(.*?)(?=^passage \d+ \(|^<<END |\Z)", re.MULTILINE | re.DOTALL
)
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)|[。！？]|\n|$)", re.DOTALL)
_TOKEN = re.compile(r"\s*[\u2e80-\u9fff\uff00-\uffef]|\s*[^\s\u2e80-\u9fff\uff00-\uffef]+|\s+")
_QUOTE_CHARS = 240

DIE_HOW = frozenset({"rst", "eof", "half_line"})
VECTOR_FAULTS = frozenset(
    {
        *("wrong_dimension", "nan", "infinity", "zero", "long", "words"),
        *("fewer", "more", "duplicated", "unnumbered", "reordered"),
        *("garbage", "huge", "slow_body", "cut"),
    }
)
RERANK_FAULTS = frozenset(
    {
        *("fewer", "duplicated", "out_of_range", "nan", "word"),
        *("garbage", "huge", "slow_body", "cut"),
    }
)


@dataclass(frozen=True, slots=True)
class ScriptedError:
    """An HTTP error instead of an answer. ``retry_after`` goes out verbatim as Retry-After, ``location``
    as Location.
    """

    status: int
    body: Any = None
    retry_after: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One call's script; the defaults answer at once with a quotation of the first passage and ``[1]``.

    reply, tokens           what to say; ``tokens`` gives the pieces, ``reply`` is split into words
    echo_citations          without reply and tokens: quote and cite every passage, not only the first
    header_delay_ms         silence before the response headers
    error_before            {status, body?, retry_after?, location?} instead of an answer
    throttle                the first n calls of each model name since the script was set get a 429 instead,
                            with throttle_retry_after as Retry-After
    first_token_ms          silence between headers and the first token
    cadence_ms              between tokens
    die_after_tokens        with die_how: "rst" resets the socket, "eof" ends the body cleanly without [DONE],
                            "half_line" ends it in the middle of a JSON line
    stall_after_tokens      silence for ever; with comments_only a comment every 20 ms
    gate_after_tokens       waits until the gate is opened (``ModelStub.open_gate`` or POST /_gate)
    gate_before_end         likewise, between [DONE] and the end of the body
    mid_stream_error        an object sent as {"error": …} after error_after_tokens tokens (default: all)
    finish_reason, no_finish, usage, usage_counts [input, output], done (send [DONE])
    split_bytes             the SSE bytes leave in pieces of n, one write each
    crlf, bare_cr           line ends other than LF
    split_surrogates        code points beyond U+FFFF as two escapes in two chunks
    giant_line              one more token of that many letters
    prelude                 comment lines and empty deltas before the first token, that many of each
    ignore_close            the model goes on after the client has left, as a deaf server would
    vectors                 embeddings: one of VECTOR_FAULTS; "long" ones are no unit vectors, "huge" is a
                            body without an end, "slow_body" waits for the gate half-way, "cut" closes there
    base64                  embeddings: packed, also when nobody asked for it
    flag                    moderations: the words that are flagged, each a category of its own name
    verdict                 moderations: the whole answer instead
    rerank                  rerank: one of RERANK_FAULTS, the last four as those of ``vectors``
    ranking                 rerank: the whole answer instead
    """

    reply: str | None = None
    tokens: tuple[str, ...] | None = None
    echo_citations: bool = False
    header_delay_ms: float = 0.0
    error_before: ScriptedError | None = None
    throttle: int = 0
    throttle_retry_after: str | None = "1"
    first_token_ms: float = 0.0
    cadence_ms: float = 0.0
    die_after_tokens: int | None = None
    die_how: str = "rst"
    stall_after_tokens: int | None = None
    comments_only: bool = False
    gate_after_tokens: int | None = None
    gate_before_end: bool = False
    mid_stream_error: Any = None
    error_after_tokens: int | None = None
    finish_reason: str = "stop"
    no_finish: bool = False
    usage: bool = True
    usage_counts: tuple[int, int] | None = None
    done: bool = True
    split_bytes: int = 0
    crlf: bool = False
    bare_cr: bool = False
    split_surrogates: bool = False
    giant_line: int = 0
    prelude: int = 0
    ignore_close: bool = False
    vectors: str | None = None
    base64: bool = False
    flag: tuple[str, ...] = ()
    verdict: Any = None
    rerank: str | None = None
    ranking: Any = None

    def changed(self, script: Mapping[str, Any]) -> "Behaviour":
        """Raises ValueError for a key that does not exist or a way to die nobody knows."""
        unknown = script.keys() - {field.name for field in fields(self)}
        if unknown:
            raise ValueError(f"no such behaviour: {', '.join(sorted(unknown))}")
        values = dict(script)
        for name in ("tokens", "usage_counts", "flag"):
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        if isinstance(values.get("error_before"), Mapping):
            values["error_before"] = ScriptedError(**values["error_before"])
        if values.get("die_how", self.die_how) not in DIE_HOW:
            raise ValueError(f"die_how is one of {', '.join(sorted(DIE_HOW))}")
        if values.get("vectors") not in {None, *VECTOR_FAULTS}:
            raise ValueError(f"vectors is one of {', '.join(sorted(VECTOR_FAULTS))}")
        if values.get("rerank") not in {None, *RERANK_FAULTS}:
            raise ValueError(f"rerank is one of {', '.join(sorted(RERANK_FAULTS))}")
        return replace(self, **values)

    @property
    def line_end(self) -> bytes:
        return b"\r\n" if self.crlf else b"\r" if self.bare_cr else b"\n"


def marked_script(text: str) -> Mapping[str, Any]:
    """The script of the last ``@@stub{…}@@`` in a message, empty when there is none. Raises ValueError."""
    found = _MARKER.findall(text)
    script = json.loads(found[-1]) if found else {}
    if not isinstance(script, dict):
        raise ValueError("a marker holds a JSON object")
    return script


def tokens_of(behaviour: Behaviour, user_message: str) -> list[str]:
    """The pieces to say; joined they are exactly the reply."""
    if behaviour.tokens is not None:
        tokens = list(behaviour.tokens)
    else:
        reply = behaviour.reply
        tokens = _TOKEN.findall(_quotation(behaviour, user_message) if reply is None else reply)
    if behaviour.giant_line:
        tokens.append("g" * behaviour.giant_line)
    return tokens


def _quotation(behaviour: Behaviour, user_message: str) -> str:
    passages = _PASSAGE.findall(user_message)
    if not passages:
        return "There is no passage to quote."
    cited = passages if behaviour.echo_citations else passages[:1]
    return " ".join(f"{_first_sentence(body)} [{n}]" for n, body in cited)


def _first_sentence(body: str) -> str:
    found = _SENTENCE.match(body.strip())
    return " ".join(found.group().split())[:_QUOTE_CHARS] if found else ""


def json_text(token: str, behaviour: Behaviour) -> Iterator[str]:
    """The JSON string literals that carry one token: one, or two where a surrogate pair is split."""
    if not behaviour.split_surrogates:
        yield json.dumps(token, ensure_ascii=False)
        return
    rest = ""
    for char in token:
        if ord(char) > 0xFFFF:
            pair = json.dumps(char)[1:-1]
            yield f'"{rest}{pair[:6]}"'
            rest = pair[6:]
        else:
            rest += json.dumps(char, ensure_ascii=False)[1:-1]
    if rest:
        yield f'"{rest}"'
