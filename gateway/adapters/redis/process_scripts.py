"""The scripts of one process: its beat, which renews its leases and its place in the registry; its leaving.

A part, 1/n of every budget, is what a process may use by itself once it can't reach Redis. It is given only
when all parts together are no more than the whole, and when every process that is heard knows of it: those
tell a Redis that has forgotten everything. One that was itself forgotten keeps its part only if that still
fits; until it is known to have heard that it doesn't, the part stays withheld. One that is alone among them
gets half: when it dies, whoever comes after it under another name must not wait until it is forgotten.
"""

from gateway.adapters.redis.script import NOW, PART, STANDING, USED_ALONE, Script

# KEYS: incarnation. ARGV: how long a new incarnation is closed. Returns for how long it still is.
LOOK = Script(STANDING + "return closed_ms")

# KEYS: incarnation, registry, silent, alone, forget; for each running call record and leases of both
# budgets. ARGV: closed ms, lease ms, forget ms, window ms, record ms; name, instance, number of the beat,
# newest reply heard ('' = none), part held (0 = none), version seen, ms since a call was admitted alone
# ('' = not), registry as last seen; which budgets have places ('0' or '1' each); for each call its member.
# Returns word, now, closed ms, part, version, registry.
BEAT = Script(
    STANDING
    + PART
    + USED_ALONE
    + """
local lease_ms, forget_ms, window_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local name, instance, number = ARGV[6], ARGV[7], tonumber(ARGV[8])
local heard, held, seen, age = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local registry, silent, alone, forget = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or now)
local changed = false

local all = {}
local flat = redis.call('HGETALL', registry)
for i = 1, #flat, 2 do all[flat[i]] = cjson.decode(flat[i + 1]) end
local function keep(each) redis.call('HSET', registry, each, cjson.encode(all[each])) end
local function is_silent(each) return tonumber(redis.call('ZSCORE', silent, each) or 0) <= now end

local mine = all[name]
if mine and mine.instance == instance and number <= mine.number then
  return {'stale', now, 0, 0, version, ''}
end
if mine and mine.instance ~= instance and mine.instance ~= '' and heard then
  return {'replaced', now, 0, 0, version, ''}
end

for _, each in ipairs(redis.call('ZRANGEBYSCORE', forget, '-inf', now)) do
  if each ~= name then
    redis.call('HDEL', registry, each)
    for _, times in ipairs({silent, alone, forget}) do redis.call('ZREM', times, each) end
    all[each], changed = nil, true
  end
end
if closed_ms > 0 then
  for each, n in pairs(cjson.decode(ARGV[13])) do
    local other = all[each]
    if each ~= name and not other then
      all[each] = {instance = '', number = 0, held = n, offered = 0, since = 0, seen = 0, alone = n}
      redis.call('ZADD', silent, 0, each)
      redis.call('ZADD', forget, now + forget_ms, each)
      keep(each)
      changed = true
    elseif each ~= name and n > 0 and (other.held == 0 or n < other.held) then
      other.held = n
      keep(each)
    end
  end
end

if not mine or mine.instance ~= instance then
  local before = mine and is_silent(name) and part(mine)
  changed = changed or not mine
  mine = {offered = 0, since = 0, alone = mine and mine.alone or 0}
  all[name] = mine
  if before then used_alone(mine, alone, name, before, now + window_ms) end
end
mine.instance, mine.number, mine.held, mine.seen = instance, number, held, seen
if age then used_alone(mine, alone, name, held, now - age + window_ms) end
redis.call('ZADD', silent, (heard and math.min(heard, now) or now) + lease_ms, name)
redis.call('ZADD', forget, now + forget_ms, name)

local given, offered = held, held
if closed_ms == 0 and heard then
  local count, others = 0, 0 -- of those that are registered
  for each, record in pairs(all) do
    local n = each ~= name and part(record)
    count = count + 1
    if n then others = others + 1 / n end
  end
  local fair = math.max(count, 2)
  local function fits(n) return others + 1 / n < 1.000000001 end
  local kept = held > 0 and fits(held) and held or 0
  offered = fits(fair) and fair or kept
  if offered ~= mine.offered then mine.since, changed = version + 1, true end
  given = offered
  for each, record in pairs(all) do
    if each ~= name and record.seen < mine.since and not is_silent(each) then given = kept end
  end
end
mine.offered = offered
if changed then
  version = version + 1
  redis.call('HSET', KEYS[1], 'version', version)
end
keep(name)

local leased = {string.sub(ARGV[14], 1, 1) == '1', string.sub(ARGV[14], 2, 2) == '1'}
for call = 0, #ARGV - 15 do
  local record, member = KEYS[6 + 3 * call], ARGV[15 + call]
  local state = redis.call('HGET', record, 'state')
  if state ~= 'spent' then
    if not state then
      redis.call('HSET', record, 'state', 'held')
      redis.call('PEXPIRE', record, ARGV[5])
    end
    for budget = 1, 2 do
      if leased[budget] then
        local leases = KEYS[6 + 3 * call + budget]
        redis.call('ZADD', leases, now + lease_ms, member)
        if redis.call('PTTL', leases) < lease_ms then redis.call('PEXPIRE', leases, lease_ms) end
      end
    end
  end
end

local view = {}
for each, record in pairs(all) do view[each] = part(record) or 0 end
return {closed_ms > 0 and 'closed' or 'open', now, closed_ms, given, version, cjson.encode(view)}
"""
)

# KEYS: incarnation, registry, silent, alone, forget. ARGV: name, instance, window ms, part held (0 = none),
# ms since a call was admitted alone ('' = not): there may have been no beat to tell it. A part that was used
# alone within the window stays withheld until it has passed.
LEAVE = Script(
    NOW
    + USED_ALONE
    + """
local found = redis.call('HGET', KEYS[2], ARGV[1])
local mine = found and cjson.decode(found)
if not mine or mine.instance ~= ARGV[2] then return 0 end
local window_ms, held, age = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if age then used_alone(mine, KEYS[4], ARGV[1], held, now - age + window_ms) end
local alone_until = tonumber(redis.call('ZSCORE', KEYS[4], ARGV[1]) or 0)
if alone_until > now then
  mine.held, mine.offered, mine.instance = 0, 0, ''
  redis.call('HSET', KEYS[2], ARGV[1], cjson.encode(mine))
  redis.call('ZADD', KEYS[5], alone_until, ARGV[1])
else
  redis.call('HDEL', KEYS[2], ARGV[1])
  for i = 3, 5 do redis.call('ZREM', KEYS[i], ARGV[1]) end
end
redis.call('HINCRBY', KEYS[1], 'version', 1)
return 1
"""
)

# KEYS: incarnation.
START = Script(
    NOW
    + """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'server', server, 'opens_ms', 0, 'version', now)
return 1
"""
)
