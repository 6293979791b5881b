"""Parsing: httptools' parser of requests, for a server that speaks HTTP/1.1 and nothing else.

A client may offer another protocol beside its request: Java's HttpClient and ``curl --http2`` do so wherever
they aren't encrypted. A server may ignore that (RFC 9110, section 7.8), but httptools doesn't know how: it
takes what follows such a head for the other protocol. So the head is given to it again without the offer.
"""

from collections.abc import Callable, Sequence

import httptools

Field = tuple[bytes, bytes]

_CONNECT = b"CONNECT"
_OFFER = b"upgrade"


class RequestParser(httptools.HttpRequestParser):
    """``declined`` is called with the bytes behind a head that offers another protocol, once it has ended.

    Before that the protocol gets every callback for this request, as if it had no body; it tells them from
    others by ``offers_another``. Afterwards the parser is of no more use.
    """

    def __init__(self, protocol: object, declined: Callable[[bytes], None]) -> None:
        super().__init__(protocol)
        # a request behind the last one is for whoever called us to refuse
        self.set_dangerous_leniencies(lenient_data_after_close=True)
        self._declined = declined

    @property
    def offers_another(self) -> bool:
        """Of the head that has just ended. CONNECT asks for it: nothing is left without."""
        return self.should_upgrade() and self.get_method() != _CONNECT

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # nobody here has any other buffer
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._declined(data[offer.args[0] :])


def plain_head(method: bytes, target: bytes, version: str, fields: Sequence[Field]) -> bytes:
    """The head as it was, without what offers another protocol."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    lines += [b"%b: %b" % field for field in fields if field[0] != _OFFER]
    return b"\r\n".join([*lines, b"", b""])
