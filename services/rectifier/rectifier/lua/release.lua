-- Give a claim back undecided; a message or run that has nothing else leaves no trace.
-- KEYS: state (hash), order (list), answers (hash), contents (hash)
-- ARGV: message id, fence
local id = ARGV[1]
if redis.call('HGET', KEYS[1], 'fence:' .. id) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], 'text:' .. id, 'fence:' .. id, 'lease:' .. id)
if redis.call('HEXISTS', KEYS[1], 'decided:' .. id) == 0 then
  redis.call('LREM', KEYS[2], -1, id)
  local is_bare = redis.call('EXISTS', KEYS[2]) == 0
  if is_bare and redis.call('HEXISTS', KEYS[1], 'closed') == 0 then
    redis.call('DEL', unpack(KEYS))
  end
end
return 1
