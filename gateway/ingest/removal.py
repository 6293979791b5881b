"""Removal: objects that nothing needs leave the store, never one that somebody is about to refer to."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import anyio

from gateway.errors import ObjectStoreUnavailable
from gateway.ingest.objects import ObjectStore
from gateway.ingest.references import TAKEOVER_S, ReferenceStore, Sentence

#: whoever condemned objects takes them away within this time, or not at all
_TIME_S = TAKEOVER_S / 2
_LAST_WORD_S = 5.0


class Removal:
    """Condemns, deletes, buries. A process that is frozen between a look at its clock and a deletion, for
    more than ten seconds, is the one that this doesn't stop: stores can't delete under a condition.
    """

    def __init__(
        self,
        references: ReferenceStore,
        objects: ObjectStore,
        window_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``window_s``: how long versions that a rollback withdrew need theirs. ``clock`` is in seconds and
        goes on while the process is frozen.
        """
        self._references = references
        self._objects = objects
        self._window_s = window_s
        self._clock = clock

    async def take_away(self, keys: Sequence[str]) -> Sentence:
        """Those of the keys that nothing needs; what became of each. Raises ObjectStoreUnavailable,
        CatalogUnavailable: whoever asks next goes on with what is left.
        """
        if not keys:
            return Sentence(0.0, (), (), ())
        began = self._clock()
        sentence = await self._references.condemn(keys, self._window_s, TAKEOVER_S)
        gone: list[str] = []
        try:
            with anyio.fail_after(_TIME_S):
                for key in sentence.condemned:
                    if self._clock() - began > _TIME_S:
                        raise TimeoutError
                    await self._objects.delete(key)
                    gone.append(key)
        except TimeoutError as error:
            raise ObjectStoreUnavailable("deleting objects took too long") from error
        finally:  # also when cancelled: what isn't buried refuses uploads until somebody takes over
            with anyio.move_on_after(_LAST_WORD_S, shield=True):
                await self._references.bury(replace(sentence, condemned=tuple(gone)))
        return sentence

    async def finish(self) -> None:
        """What somebody condemned and didn't come to take away."""
        while left := await self._references.left_condemned(TAKEOVER_S):
            await self.take_away(left)
