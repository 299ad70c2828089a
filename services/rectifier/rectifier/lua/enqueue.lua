-- Put a trajectory into the queue, unless it was put there before.
-- KEYS: the stream, the trajectory's mark; ARGV: ttl of the mark in ms, then fields and values
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local entry = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2))
redis.call('SET', KEYS[2], entry, 'PX', ARGV[1])
return 1
