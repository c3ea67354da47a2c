"""The monitor: what people see.  It folds the journal, decides nothing and writes nothing there.

core, model/     the fold: who waits and runs, who held and used what, levels of service, hosts and load over time
pictures/        the fold as JSON          serve/     HTTP and NATS: who may read, reads, the live page and its stream
metrics/         for Prometheus            explain/   why something is so, and how it came to be so
history/         SQLite, and the archive of what is trimmed from the journal
events           valid facts one by one, for everybody       edge    what starts and ends all of it
"""
