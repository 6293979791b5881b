"""A script: one step of the quota, done whole or not at all; and what all of them begin with.

Repeats change nothing, and all times are Redis' own, in ms.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import NoScriptError

from gateway.adapters.redis.connection import Client

# The replication id changes with every start of a server and with every promotion: whatever may have lost
# keys. It also changes, though nothing is lost, when a primary gets its first replica and when it frees the
# backlog after ``repl-backlog-ttl`` without one; nothing here can tell these for certain from a loss, so they
# close the quota as well.
NOW = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local server = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
"""

# KEYS: incarnation. ARGV: how long a new incarnation is closed, in ms.
STANDING = (
    NOW
    + """
local known = redis.call('HMGET', KEYS[1], 'server', 'opens_ms')
if known[1] ~= server then
  known[2] = now + ARGV[1]
  redis.call('HSET', KEYS[1], 'server', server, 'opens_ms', known[2], 'version', now)
end
local closed_ms = math.max(0, tonumber(known[2]) - now)
"""
)

# Of a record of the registry: the part 1/n it may be using, by the smaller n; nil = none.
PART = """
local function part(record)
  local n
  for _, each in ipairs({record.held, record.offered}) do
    if each > 0 and (not n or each < n) then n = each end
  end
  return n
end
"""

# A part that was used alone is withheld from the others' rates until that use has left the window, by the
# smaller n while an earlier use is still within it: parts shrink, what was used doesn't.
USED_ALONE = """
local function used_alone(record, alone, name, n, till)
  if till <= now then return end
  local before = tonumber(redis.call('ZSCORE', alone, name) or 0)
  local earlier = before > now and record.alone or 0
  if n == 0 or earlier > 0 and earlier < n then n = earlier end
  record.alone = n
  redis.call('ZADD', alone, math.max(before, till), name)
end
"""


@dataclass(frozen=True, slots=True)
class Script:
    """One script, which Redis may have forgotten: then it gets it again, and has done nothing before."""

    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "digest", digest)

    async def run(self, client: Client, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        """The script's reply; redis-py's errors as they are."""
        given = [*keys, *map(str, arguments)]
        try:
            return await client.evalsha(self.digest, len(keys), *given)
        except NoScriptError:
            return await client.eval(self.text, len(keys), *given)
