"""The embedded OpenNebula: an XML-RPC server that answers as `oned` 7.4 does, over hypervisors of this machine.

Entry points: `python -m phoenix.local.opennebula` (see `__main__`), `server.OpenNebula` in a process,
`testing.running_server` in tests.
"""
