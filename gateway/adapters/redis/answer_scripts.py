"""The scripts of kept answers: harmless when they run twice, each in one slot of a cluster."""

from gateway.adapters.redis.script import Script

# KEYS: the slot of the quota, then the list of each document in it. ARGV: the entry's name, ms it lives.
# Returns 0, and lists nothing, when three quarters of Redis' memory are in use: the rest is for the quota,
# without which nothing is answered. By Redis' own clock, so that no process takes another's entries for over.
LIST = Script(
    """
local info = redis.call('INFO', 'memory')
local most = tonumber(string.match(info, 'maxmemory:(%d+)'))
if most > 0 and tonumber(string.match(info, 'used_memory:(%d+)')) * 4 > most * 3 then return 0 end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ttl = tonumber(ARGV[2])
for i = 2, #KEYS do
  local list = KEYS[i]
  redis.call('ZADD', list, now + ttl, ARGV[1])
  redis.call('ZREMRANGEBYSCORE', list, '-inf', now)
  if redis.call('PTTL', list) < ttl then redis.call('PEXPIRE', list, ttl) end
end
return 1
"""
)

# KEYS: the claim. ARGV: owner, ms it lasts.
CLAIM = Script(
    """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
)

# KEYS: the claim. ARGV: owner.
UNCLAIM = Script(
    """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
)
