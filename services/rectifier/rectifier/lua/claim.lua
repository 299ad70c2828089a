-- Claim the next attempt at a message, or say what stands in the way.
-- KEYS: state (hash), order (list of message ids), answers (hash), contents (hash)
-- ARGV: message id, content hash, attempt (-1: the next), task hash, fence, lease in ms, ttl in ms,
--       fallback_of ('' for none), pool
-- Returns: 'claim', attempt, whether the text is unchanged, whether in shadow, previous (or no more);
--       'answer', the stored one; 'wait', attempt, its holder's fence, ms until its lease ends;
--       'conflict', its kind, and for 'attempt_mismatch' the next attempt
local id, hash, attempt = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- A field of a message ends in the message's id, which is any text.
local function state(name) return redis.call('HGET', KEYS[1], name .. ':' .. id) end
local function answer(number) return {'answer', redis.call('HGET', KEYS[3], number .. ':' .. id)} end

local run = redis.call('HMGET', KEYS[1], 'closed', 'task_hash', 'fallback_of')
if run[1] then return {'conflict', 'run_closed'} end
if run[2] and run[2] ~= ARGV[4] then return {'conflict', 'task_mismatch'} end
if run[2] and ARGV[8] ~= '' and run[3] ~= ARGV[8] then return {'conflict', 'fallback_mismatch'} end

local decided = tonumber(state('decided') or '0')
local is_unchanged = decided > 0 and state('hash:' .. (decided - 1)) == hash
if attempt >= 0 and attempt < decided and state('hash:' .. attempt) == hash then
  return answer(attempt)
end
if decided > 0 and state('decision') ~= 'retry' then
  if is_unchanged then return answer(decided - 1) end
  return {'conflict', 'message_closed'}
end
if attempt >= 0 and attempt ~= decided then
  return {'conflict', 'attempt_mismatch', decided}
end
local holder = state('fence')
local left = holder and state('lease') - now or 0
if left > 0 then
  if state('text') == hash then return {'wait', decided, holder, left} end
  return {'conflict', 'in_progress'}
end

if not run[2] then
  redis.call('HSET', KEYS[1], 'task_hash', ARGV[4], 'pool', ARGV[9])
  if ARGV[8] ~= '' then redis.call('HSET', KEYS[1], 'fallback_of', ARGV[8]) end
end
if decided == 0 and not holder then redis.call('RPUSH', KEYS[2], id) end
redis.call('HSET', KEYS[1],
  'text:' .. id, hash, 'fence:' .. id, ARGV[5], 'lease:' .. id, now + ARGV[6])
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[7]) end

local in_shadow = run[3] or (not run[2] and ARGV[8] ~= '')
return {
  'claim', decided, is_unchanged and 1 or 0, in_shadow and 1 or 0,
  redis.call('HGET', KEYS[3], 'previous:' .. id)
}
