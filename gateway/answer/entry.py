"""An entry: a kept answer as bytes."""

from gateway.answer.outcome import KeptAnswer


class Entries:
    """Implements EntryForm."""

    def encode(self, digest: str, kept: KeptAnswer) -> bytes:
        raise NotImplementedError

    def decode(self, digest: str, content: bytes) -> KeptAnswer:
        raise NotImplementedError
