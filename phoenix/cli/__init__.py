"""The command line `phoenix`: one module a command, imported only when that command is run.

A read such as `phoenix queue` must cost little more than starting Python, so nothing here imports aiohttp, nats or rich at
module level on that path; the doors are plain HTTP (`phoenix.cli.http`) and the supervisor's socket (`phoenix.cli.socket`).
"""
