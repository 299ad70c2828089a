-- Commit the decision on a claimed attempt, and complete its answer with the run's counts.
-- A commit that is sent again answers what it answered.
-- KEYS: state (hash), order (list), answers (hash), contents (hash)
-- ARGV: message id, fence, decision, answer without its closing brace, record, previous, content
--       ('' for none), gamma, expected messages (0: unknown), max retries, ttl in ms, task ('' for
--       none), how many bytes of contents a run keeps
-- Returns: 'answer', the whole one; 'conflict', its kind
local id, fence, decision = ARGV[1], ARGV[2], ARGV[3]
local function state(name) return redis.call('HGET', KEYS[1], name .. ':' .. id) end

local decided = tonumber(state('decided') or '0')
if state('committed') == fence then
  return {'answer', redis.call('HGET', KEYS[3], (decided - 1) .. ':' .. id)}
end
if redis.call('HEXISTS', KEYS[1], 'closed') == 1 then return {'conflict', 'run_closed'} end
if state('fence') ~= fence then return {'conflict', 'in_progress'} end

local counted = {pass = 'retained', reject = 'rejected'}
if decided == 0 then redis.call('HINCRBY', KEYS[1], 'messages', 1) end
if counted[decision] then redis.call('HINCRBY', KEYS[1], counted[decision], 1) end
redis.call('HSET', KEYS[1], 'gamma', ARGV[8])
if ARGV[9] ~= '0' then redis.call('HSET', KEYS[1], 'expected', ARGV[9]) end

local run = redis.call('HMGET', KEYS[1], 'messages', 'retained', 'rejected', 'expected', 'fallback_of')
local rejected, expected = tonumber(run[3] or '0'), tonumber(run[4] or '0')
local total = math.max(expected, tonumber(run[1]))
local cannot_recover = not run[5] and rejected > 0 and expected > 0
  and total - rejected < math.min(tonumber(ARGV[8]), total)
local answer = table.concat({
  ARGV[4], ',"run":{"messages":', run[1], ',"retained":', run[2] or '0',
  ',"rejected":', run[3] or '0', ',"fallback":', cannot_recover and 'true' or 'null', '}}'
})

redis.call('HSET', KEYS[1],
  'decided:' .. id, decided + 1, 'decision:' .. id, decision, 'committed:' .. id, fence,
  'max_retries:' .. id, ARGV[10],
  'hash:' .. decided .. ':' .. id, state('text'), 'record:' .. decided .. ':' .. id, ARGV[5])
redis.call('HDEL', KEYS[1], 'text:' .. id, 'fence:' .. id, 'lease:' .. id)
redis.call('HSET', KEYS[3], decided .. ':' .. id, answer)
if decision == 'retry' then
  redis.call('HSET', KEYS[3], 'previous:' .. id, ARGV[6])
else
  redis.call('HDEL', KEYS[3], 'previous:' .. id)
end
if ARGV[7] ~= '' then
  local bytes = redis.call('HINCRBY', KEYS[1], 'content_bytes', #ARGV[7])
  if bytes <= tonumber(ARGV[13]) then
    redis.call('HSET', KEYS[4], decided .. ':' .. id, ARGV[7])
    redis.call('HSETNX', KEYS[4], 'task', ARGV[12])
  else
    redis.call('HSET', KEYS[1], 'is_cut', '1')
  end
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[11]) end
return {'answer', answer}
