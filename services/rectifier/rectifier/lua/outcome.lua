-- Record how a run ended, once; only an unknown outcome gives way to another one.
-- KEYS: state (hash); ARGV: the outcome's hash, whether it is known (1 or 0)
-- Returns: 'missing', 'conflict' or 'recorded'
if redis.call('EXISTS', KEYS[1]) == 0 then return 'missing' end
local found = redis.call('HMGET', KEYS[1], 'outcome', 'is_known')
if found[2] == '1' and found[1] ~= ARGV[1] then return 'conflict' end
redis.call('HSET', KEYS[1], 'outcome', ARGV[1], 'is_known', ARGV[2])
return 'recorded'
