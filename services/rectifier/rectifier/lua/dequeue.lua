-- Take a trajectory out of the queue again, where it is in it.
-- KEYS: the stream, the trajectory's mark
local entry = redis.call('GETDEL', KEYS[2])
return entry and redis.call('XDEL', KEYS[1], entry) or 0
