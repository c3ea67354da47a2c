-- Requests wait for a server instead of failing at once:
--     http-request lua.wait_for_server BACKEND SECONDS if { nbsrv(BACKEND) eq 0 }
-- The first instance of a department boots for a second or so, and so does the one that replaces its only one.  A request that
-- waits holds a connection of its client and nothing else; frontend `maxconn` bounds how many there are.
local PAUSE_MS = 20

core.register_action("wait_for_server", { "http-req" }, function(txn, backend, seconds)
    local left = tonumber(seconds) * 1000
    while left > 0 and txn.f:nbsrv(backend) == 0 do
        core.msleep(PAUSE_MS)
        left = left - PAUSE_MS
    end
end, 2)
