"""Why files aren't imported, for people: what it means, and what to do about it."""

from gateway.ingest.reasons import DOCUMENT_REASONS

#: files that an import of a folder doesn't mean
PASSED_OVER = {
    "hidden": "hidden",
    "not_included": "not matched by --include",
    "unsupported_type": "of types that aren't read",
    "empty": "empty",
    "outside": "links that lead out of the folder",
    "folder_link": "links to folders",
    "broken_link": "links that lead nowhere",
    "not_a_file": "pipes, sockets or devices",
}

_OF_FILES = {
    "unreadable": "it could not be read",
    "bad_name": "its name can't be a document's name",
    "same_name": "another file has the same name",
    "changed": "it was changed while it was read",
    "cancelled": "its task was cancelled",
    "deadline_exceeded": "its task ran out of time",
    "waited_too_long": "its task was accepted too long ago and is given up",
    "attempts_exhausted": "its task was tried too often",
    "body_too_large": "it is larger than the server accepts",
}

_ADVICE = {
    "blank": "write something into it, or leave it out",
    "undecodable": "save it as UTF-8",
    "not_text": "give it the ending of its real type, or leave it out",
    "unsupported_type": "save it in a type that is read",
    "too_large": "split it, or raise GATEWAY_DOCUMENT_MAX_BYTES on the server",
    "body_too_large": "split it, or raise GATEWAY_DOCUMENT_MAX_BYTES on the server",
    "too_complex": "split it into smaller files",
    "corrupt": "open it in its program and save it again",
    "encrypted": "save it without a password",
    "needs_ocr": "have its text recognised first, then import that",
    "bomb": "unpack it and import what is inside",
    "original_lost": "run the same command again",
    "too_sensitive": "import it where the embedder may see it, or with a lower --sensitivity",
    "unreadable": "look at its permissions",
    "bad_name": "rename it",
    "same_name": "rename one of them, or import their common folder",
    "changed": "run the same command again",
    "cancelled": "run the same command again",
    "deadline_exceeded": "run the same command again",
    "waited_too_long": "see that workers run, then run the same command again",
    "attempts_exhausted": "see the server's log, then run the same command again",
}


def meaning(reason: str) -> str:
    """One sentence without its dot; the reason itself when nobody has words for it."""
    return DOCUMENT_REASONS.get(reason) or _OF_FILES.get(reason) or reason


def advice(reason: str) -> str:
    """Empty when there is none."""
    return _ADVICE.get(reason, "")
