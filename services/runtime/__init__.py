"""What each of the five services stands on: the shell around a core.

Each line stands on those below it, and on none above:

main, service          a process; one core, one shell, its edges
engine, drafts         fold what has arrived, draft what follows, one envelope at a time
callers/               callers, their addresses, and what the audit keeps of them
journal/               appending behind the fence, reading, folding, the lease, snapshots, the archive
broker/                NATS: connecting, permissions, streams and objects, how a request is answered
config/                the configuration file: its form, what its parts mean, the files that it names
core, edge, refusal    what a service brings: a pure core, its edges to the outside, and how a request is refused
log, exits, clock, families   logged, ended, timed and measured in one way
"""
