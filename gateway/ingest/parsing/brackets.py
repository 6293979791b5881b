"""Brackets in Markdown: a paragraph with too many open ones is read without links.

The parser looks for the end of a link from every open bracket on, inside every one that is open around it: a
megabyte of them took minutes. CommonMark has no such bound. Where it is passed, brackets and link targets
stay in the text as they are written, so nothing is lost.
"""

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore

#: open at once; measured at this depth: 30 microseconds a character, no more than long lists take
_MAX_OPEN = 16


def bound_links(reader: MarkdownIt) -> None:
    """``reader`` takes time in proportion to a text's length from now on, whatever brackets it has."""
    plain = MarkdownIt("commonmark", reader.options).enable("strikethrough").disable(["link", "image"])

    def read_inline(state: StateCore) -> None:
        for token in state.tokens:
            if token.type == "inline":
                token.children = token.children or []
                chosen = plain if _is_crowded(token.content) else state.md
                chosen.inline.parse(token.content, state.md, state.env, token.children)

    reader.core.ruler.at("inline", read_inline)


def _is_crowded(text: str) -> bool:
    if text.count("[") <= _MAX_OPEN:
        return False
    depth = 0
    for character in text:
        if character == "[":
            depth += 1
            if depth > _MAX_OPEN:
                return True
        elif character == "]" and depth:
            depth -= 1
    return False
