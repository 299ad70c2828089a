-- Commit the decision on a claimed attempt, and complete its answer with the run's counts.
-- KEYS: run (hash), order (list), message (hash)
-- ARGV: message id, fence, decision, answer without its closing brace, record, previous, content
--       ('' for none), gamma, expected messages (0: unknown), max retries, ttl in ms, task ('' for none)
local id, decision = ARGV[1], ARGV[3]
if redis.call('HGET', KEYS[1], 'closed') then return {'conflict', 'run_closed'} end
if redis.call('HGET', KEYS[3], 'fence') ~= ARGV[2] then return {'conflict', 'in_progress'} end

local decided = tonumber(redis.call('HGET', KEYS[3], 'decided') or '0')
if decided == 0 then redis.call('HINCRBY', KEYS[1], 'messages', 1) end
if decision == 'pass' then redis.call('HINCRBY', KEYS[1], 'retained', 1) end
if decision == 'reject' then redis.call('HINCRBY', KEYS[1], 'rejected', 1) end
redis.call('HSET', KEYS[1], 'gamma', ARGV[8], 'decision:' .. id, decision)
redis.call('HDEL', KEYS[1], 'lease:' .. id)
if ARGV[9] ~= '0' then redis.call('HSET', KEYS[1], 'expected', ARGV[9]) end
if ARGV[12] ~= '' then redis.call('HSETNX', KEYS[1], 'task', ARGV[12]) end

local run = redis.call('HMGET', KEYS[1], 'messages', 'retained', 'rejected', 'expected', 'fallback_of')
local rejected, expected = tonumber(run[3] or '0'), tonumber(run[4] or '0')
local cannot_recover = not run[5] and rejected > 0 and expected > 0
  and expected - rejected < math.min(tonumber(ARGV[8]), expected)
local answer = string.format(
  '%s,"run":{"messages":%s,"retained":%s,"rejected":%s,"fallback":%s}}',
  ARGV[4], run[1], run[2] or '0', run[3] or '0', cannot_recover and 'true' or 'null'
)

redis.call('HSET', KEYS[3],
  'decided', decided + 1, 'previous', ARGV[6], 'max_retries', ARGV[10],
  'hash:' .. decided, redis.call('HGET', KEYS[3], 'hash'),
  'answer:' .. decided, answer, 'record:' .. decided, ARGV[5])
if ARGV[7] ~= '' then redis.call('HSET', KEYS[3], 'content:' .. decided, ARGV[7]) end
if decision ~= 'retry' then redis.call('HSET', KEYS[3], 'is_final', '1') end
redis.call('HDEL', KEYS[3], 'hash', 'fence', 'lease')
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[11]) end
return {'answer', answer}
