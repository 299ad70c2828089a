-- Claim the next attempt at a message, or say what stands in the way.
-- KEYS: run (hash), order (list of message ids), message (hash)
-- ARGV: message id, content hash, attempt (-1: the next), task hash, fence, lease in ms, ttl in ms,
--       fallback_of ('' for none), pool
local id, hash, attempt = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local run = redis.call('HMGET', KEYS[1], 'closed', 'task_hash', 'fallback_of')
if run[1] then return {'conflict', 'run_closed'} end
if run[2] and run[2] ~= ARGV[4] then return {'conflict', 'task_mismatch'} end

local message = redis.call('HMGET', KEYS[3], 'decided', 'is_final', 'hash', 'fence', 'lease')
local decided = tonumber(message[1] or '0')
if attempt >= 0 and attempt < decided and redis.call('HGET', KEYS[3], 'hash:' .. attempt) == hash then
  return {'answer', redis.call('HGET', KEYS[3], 'answer:' .. attempt)}
end
if message[2] then
  local last = decided - 1
  if redis.call('HGET', KEYS[3], 'hash:' .. last) == hash then
    return {'answer', redis.call('HGET', KEYS[3], 'answer:' .. last)}
  end
  return {'conflict', 'message_closed'}
end
if attempt >= 0 and attempt ~= decided then
  return {'conflict', 'attempt_mismatch', decided}
end
if message[4] and tonumber(message[5]) > now then
  if message[3] == hash then return {'wait', decided} end
  return {'conflict', 'in_progress'}
end

if not run[2] then
  redis.call('HSET', KEYS[1], 'task_hash', ARGV[4], 'pool', ARGV[9])
  if ARGV[8] ~= '' then redis.call('HSET', KEYS[1], 'fallback_of', ARGV[8]) end
end
if not message[1] and not message[4] then redis.call('RPUSH', KEYS[2], id) end
local lease = now + ARGV[6]
redis.call('HSET', KEYS[3], 'hash', hash, 'fence', ARGV[5], 'lease', lease)
redis.call('HSET', KEYS[1], 'lease:' .. id, lease)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[7]) end

local in_fallback = run[3] or (not run[2] and ARGV[8] ~= '')
local unchanged = decided > 0 and redis.call('HGET', KEYS[3], 'hash:' .. (decided - 1)) == hash
return {
  'claim', decided, unchanged and 1 or 0, in_fallback and 1 or 0,
  redis.call('HGET', KEYS[3], 'previous')
}
