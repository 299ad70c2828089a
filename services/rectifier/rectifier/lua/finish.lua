-- Close a run: who was retained, and whether the fallback is due. A second call answers the same.
-- KEYS: state (hash), order (list), answers (hash), contents (hash)
-- Returns: 'missing'; 'conflict', its kind; 'finished', newly closed, fallback, retained ids
if redis.call('EXISTS', KEYS[1]) == 0 then return {'missing'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local retained = {}
for _, id in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local message = redis.call('HMGET', KEYS[1], 'lease:' .. id, 'decision:' .. id)
  if message[1] and tonumber(message[1]) > now then return {'conflict', 'in_progress'} end
  if message[2] == 'pass' then table.insert(retained, id) end
end
local run = redis.call('HMGET', KEYS[1], 'messages', 'rejected', 'gamma', 'fallback_of')
local messages, rejected = tonumber(run[1] or '0'), tonumber(run[2] or '0')
local due = not run[4] and rejected > 0 and #retained < math.min(tonumber(run[3]), messages)
local is_new = redis.call('HSETNX', KEYS[1], 'closed', due and 'fallback' or 'kept')
return {'finished', is_new, due and 1 or 0, retained}
