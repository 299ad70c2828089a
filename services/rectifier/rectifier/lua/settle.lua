-- Keep the answer under an idempotency key, or forget the key; only its holder may.
-- KEYS: the key (hash); ARGV: the holder's mark, the answer ('' to forget), ttl in ms
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('DEL', KEYS[1]) end
redis.call('HDEL', KEYS[1], 'holder')
redis.call('HSET', KEYS[1], 'answer', ARGV[2])
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
