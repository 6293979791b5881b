"""A sliding window: what was used in the last minute, never less than the truth."""

SLOTS = 61


class SlidingWindow:
    """Amounts by the second they were used in, kept for 61 of them: any 60 seconds lie within that.

    So a limit that the window's sum never exceeds isn't exceeded in any 60 seconds. ``now`` is in seconds
    of any clock that doesn't go back; another ``window_s`` has 61 slots of a sixtieth of it.
    """

    def __init__(self, window_s: float = 60.0) -> None:
        self._slot_s = window_s / (SLOTS - 1)
        self._used: dict[int, int] = {}

    def used(self, now: float) -> int:
        oldest = self._slot(now) - SLOTS
        for slot in [slot for slot in self._used if slot <= oldest]:
            del self._used[slot]
        return sum(self._used.values())

    def add(self, amount: int, now: float) -> int:
        """Returns the slot, for ``correct``."""
        slot = self._slot(now)
        self._used[slot] = self._used.get(slot, 0) + amount
        return slot

    def correct(self, slot: int, amount: int, now: float) -> None:
        """Less was used than added, or more: what is given back leaves its slot, the rest is used now."""
        if amount > 0:
            self.add(amount, now)
        elif slot in self._used:
            self._used[slot] += amount

    def wait_s(self, amount: int, limit: int, now: float) -> float:
        """How long until ``amount`` more has room, when nothing else is added."""
        room = limit - self.used(now)
        for slot in sorted(self._used):
            if room >= amount:
                return 0.0
            room += self._used[slot]
            if room >= amount:
                return (slot + SLOTS) * self._slot_s - now
        return 0.0 if room >= amount else SLOTS * self._slot_s

    def _slot(self, now: float) -> int:
        return int(now // self._slot_s)
