"""The scripts of one call: reserving its places, requests and tokens, and settling them.

A process is *silent* when a whole lease has passed since the newest beat of ours whose reply it has heard.
What it may use by itself then, its part, is withheld from all others.
"""

from gateway.adapters.redis.script import NOW, PART, STANDING, Script

# KEYS: incarnation, registry, silent, alone; record, then leases and use of both budgets.
# ARGV: closed ms, lease ms, slot ms, record ms, member, tokens; limits of both budgets: calls, requests,
# tokens, -1 = none. Returns word, wait ms, budget (0, 1), kind, room. It reads before it writes, so that a
# Redis without memory refuses the whole.
RESERVE = Script(
    STANDING
    + PART
    + """
if closed_ms > 0 then return {'closed', closed_ms} end
local state = redis.call('HGET', KEYS[5], 'state')
if state == 'spent' then return {'spent', 0} end
local lease_ms, slot_ms, tokens = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
local slot = math.floor(now / slot_ms)

local function record_of(name)
  local found = redis.call('HGET', KEYS[2], name)
  return found and cjson.decode(found) or {held = 0, offered = 0, alone = 0}
end
local silent, alone = {}, {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)) do
  local n = part(record_of(name))
  silent[name], alone[name] = n, n
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], now, '+inf')) do
  local n = record_of(name).alone
  if n > 0 and (not alone[name] or n < alone[name]) then alone[name] = n end
end
local function withheld(parts, limit)
  local sum = 0
  for _, n in pairs(parts) do sum = sum + math.floor(limit / n) end
  return sum
end

local function wait_ms(used, room, amount)
  for each = slot - 60, slot do
    room = room + (used[each] or 0)
    if room >= amount then return (each + 61) * slot_ms - now end
  end
  return 61 * slot_ms
end

local old = {}
local function short_of(kind, prefix, use, limit, amount)
  if limit < 0 then return end
  local used, sum = {}, 0
  local all = redis.call('HGETALL', use)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) == prefix then
      local each = tonumber(string.sub(all[i], 2))
      if each < slot - 60 then
        old[#old + 1] = {use, all[i]}
      else
        used[each] = tonumber(all[i + 1])
        sum = sum + used[each]
      end
    end
  end
  local room = limit - sum - withheld(alone, limit)
  if room < amount then return {kind, room, wait_ms(used, room, amount)} end
end

local function short_of_calls(leases, limit)
  if limit < 0 or redis.call('ZSCORE', leases, ARGV[5]) then return end
  local room = limit - redis.call('ZCOUNT', leases, '(' .. now, '+inf') - withheld(silent, limit)
  if room < 1 then return {'concurrency', room, 0} end
end

local function limits_of(budget)
  local first = 7 + 3 * budget
  return tonumber(ARGV[first]), tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
end

for budget = 0, 1 do
  local leases, use = KEYS[6 + 2 * budget], KEYS[7 + 2 * budget]
  local calls, requests, total = limits_of(budget)
  local short = short_of_calls(leases, calls)
  if not short and not state then
    short = short_of('requests', 'r', use, requests, 1) or short_of('tokens', 't', use, total, tokens)
  end
  if short then return {'over', short[3], budget, short[1], short[2]} end
end

for budget = 0, 1 do
  local leases, use = KEYS[6 + 2 * budget], KEYS[7 + 2 * budget]
  local calls, requests, total = limits_of(budget)
  if calls >= 0 then
    redis.call('ZADD', leases, now + lease_ms, ARGV[5])
    redis.call('ZREMRANGEBYSCORE', leases, '-inf', now)
    if redis.call('PTTL', leases) < lease_ms then redis.call('PEXPIRE', leases, lease_ms) end
  end
  if not state then
    if requests >= 0 then redis.call('HINCRBY', use, 'r' .. slot, 1) end
    if total >= 0 then redis.call('HINCRBY', use, 't' .. slot, tokens) end
    redis.call('PEXPIRE', use, 62 * slot_ms)
  end
end
for _, each in ipairs(old) do redis.call('HDEL', each[1], each[2]) end
if not state then
  redis.call('HSET', KEYS[5], 'state', 'held', 'slot', slot, 'tokens', tokens)
  redis.call('PEXPIRE', KEYS[5], ARGV[4])
end
return {'held', 0}
"""
)

# KEYS: record, then leases and use of both budgets. ARGV: record ms, slot ms, member, tokens used, or
# 'unknown', or 'never' when nothing was begun. One that overtakes its reservation forbids it.
SETTLE = Script(
    NOW
    + """
local record = redis.call('HMGET', KEYS[1], 'state', 'slot', 'tokens')
if record[1] == 'spent' then return 0 end
redis.call('ZREM', KEYS[2], ARGV[3]) -- first, so that a Redis without memory does it too
redis.call('ZREM', KEYS[4], ARGV[3])
redis.call('HSET', KEYS[1], 'state', 'spent')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if ARGV[4] == 'unknown' or not record[3] then return 1 end
local never = ARGV[4] == 'never'
local change = (never and 0 or tonumber(ARGV[4])) - tonumber(record[3])
local slot = record[2]
for _, use in ipairs({KEYS[3], KEYS[5]}) do
  local counted = redis.call('HEXISTS', use, 't' .. slot) == 1
  if change < 0 and counted then redis.call('HINCRBY', use, 't' .. slot, change) end
  if change > 0 and counted then
    redis.call('HINCRBY', use, 't' .. math.floor(now / ARGV[2]), change)
    redis.call('PEXPIRE', use, 62 * ARGV[2])
  end
  if never and redis.call('HEXISTS', use, 'r' .. slot) == 1 then
    redis.call('HINCRBY', use, 'r' .. slot, -1)
  end
end
return 1
"""
)
