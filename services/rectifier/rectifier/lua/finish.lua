-- Close a run: who was retained, and whether the fallback is due. A second call answers the same.
-- KEYS: run (hash), order (list)
-- Returns: 'missing', or 'conflict' and its kind, or 'finished', newly closed, fallback, retained ids
if redis.call('EXISTS', KEYS[1]) == 0 then return {'missing'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local order = redis.call('LRANGE', KEYS[2], 0, -1)
local retained = {}
for _, id in ipairs(order) do
  local lease = redis.call('HGET', KEYS[1], 'lease:' .. id)
  if lease and tonumber(lease) > now then return {'conflict', 'in_progress'} end
  if redis.call('HGET', KEYS[1], 'decision:' .. id) == 'pass' then table.insert(retained, id) end
end
local run = redis.call('HMGET', KEYS[1], 'messages', 'rejected', 'gamma', 'fallback_of')
local messages, rejected = tonumber(run[1] or '0'), tonumber(run[2] or '0')
local due = not run[4] and rejected > 0 and #retained < math.min(tonumber(run[3] or '0'), messages)
local is_new = redis.call('HSETNX', KEYS[1], 'closed', due and 'fallback' or 'kept')
return {'finished', is_new, due and 1 or 0, retained}
