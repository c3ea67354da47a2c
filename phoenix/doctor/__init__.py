"""`phoenix doctor`: what stands in the way of using an OpenNebula, before it is used; and whether the broker still writes.

endpoint.py   one endpoint, asked with the executor's own client; every error as a name
checks.py     what follows from what it said: pure, one function a subject
dry_run.py    one VM on HOLD, and a deployment that cannot happen; nothing is left behind
pace.py       one small VM that runs: how long it takes to start, to call, to end, and whether the configuration allows for it
broker.py     whether the cloud's own broker, where there is one, still writes
findings.py   a finding: ok, warn or fail, what was found, and what to do
"""
