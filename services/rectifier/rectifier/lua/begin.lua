-- Begin the work of an idempotency key, or say what came of it.
-- KEYS: the key (hash); ARGV: the holder's mark, the body's hash, lease in ms
-- Returns: 'begun'; 'other', where the key is of another body; 'answer', the stored one;
--       'wait', the holder's mark, ms until its lease ends
local found = redis.call('HMGET', KEYS[1], 'body', 'answer', 'holder')
if found[1] and found[1] ~= ARGV[2] then return {'other'} end
if found[2] then return {'answer', found[2]} end
if found[1] then return {'wait', found[3], redis.call('PTTL', KEYS[1])} end
redis.call('HSET', KEYS[1], 'body', ARGV[2], 'holder', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'begun'}
