-- Requests wait for a server instead of failing at once:
--     http-request lua.wait_for_server BACKEND SECONDS if { nbsrv(BACKEND) eq 0 } !{ stopping }
-- The first instance of a department boots for a second or so, and so does the one that replaces its only one.  A request that
-- waits holds a connection of its client and nothing else; frontend `maxconn` bounds how many there are.
local PAUSE_MS = 20

-- In a process that a reload has replaced nbsrv is 0 for ever.
local function stops(txn)
    local answer = txn.f:stopping()  -- a number in 2.6
    return answer == 1 or answer == true
end

core.register_action("wait_for_server", { "http-req" }, function(txn, backend, seconds)
    local left = tonumber(seconds) * 1000
    while left > 0 and txn.f:nbsrv(backend) == 0 and not stops(txn) do
        core.msleep(PAUSE_MS)
        left = left - PAUSE_MS
    end
end, 2)
