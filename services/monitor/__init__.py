"""The monitor: what people see.  It folds the journal, decides nothing and writes nothing there.

Each line stands on those below it, and on none above:

edge                   what starts and ends all of it
metrics/   explain/    for Prometheus; why something is so, and how it came to be so
serve/                 HTTP and NATS: access, reads, the live page and its stream
history/               SQLite, and the archive of what is trimmed from the journal
pictures/              the fold as JSON
core, model/           the fold: waiting and running jobs, holders and usage, levels of service, hosts and load over time
events, stream_reads   valid facts one by one, for all readers; what a stream of the broker holds
"""
