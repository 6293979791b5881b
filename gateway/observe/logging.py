"""Structured logs: one JSON line an event on stderr; never a question, a chunk or an answer."""

import contextlib
import logging
import sys
from typing import TextIO, cast

import structlog

#: libraries that print request content at DEBUG
_QUIET = ("sse_starlette", "openai", "httpx2", "httpcore2", "pymilvus", "sqlalchemy", "aiosqlite")


class _Sink:
    """Drops what it can't write: a full disk costs lines of the log, not answers."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):  # there is nowhere left to tell it
            self._out.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):  # likewise
            self._out.flush()


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Once a process. Foreign libraries log at WARNING and through the same lines."""
    number = logging.getLevelNamesMapping()[level.upper()]
    out = cast(TextIO, _Sink(stream or sys.stderr))  # the two methods are all that loggers call
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose lines carry ``component=name``; event names are dotted."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(component=name)
    return logger
