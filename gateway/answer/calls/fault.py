"""Faults of an answer model that tell what to do next: ask again or not, and what the call has used."""

from gateway.errors import UpstreamFailed


class ModelUnreached(UpstreamFailed):
    """No connection came about: nothing was sent."""


class ModelThrottled(UpstreamFailed):
    """The endpoint has too much to do (429, or 503): nothing was generated; it may say when to come again."""


class ModelRefused(UpstreamFailed):
    """The endpoint doesn't accept this call, and wouldn't accept it again: nothing was generated."""


#: what certainly used no tokens
UNUSED = (ModelUnreached, ModelThrottled, ModelRefused)
