-- Give a claim back undecided; a message or run that has nothing else leaves no trace.
-- KEYS: run (hash), order (list), message (hash); ARGV: message id, fence
if redis.call('HGET', KEYS[3], 'fence') ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], 'lease:' .. ARGV[1])
redis.call('HDEL', KEYS[3], 'hash', 'fence', 'lease')
if redis.call('HEXISTS', KEYS[3], 'decided') == 0 then
  redis.call('LREM', KEYS[2], -1, ARGV[1])
  redis.call('DEL', KEYS[3])
  if redis.call('LLEN', KEYS[2]) == 0 then redis.call('DEL', KEYS[1]) end
end
return 1
