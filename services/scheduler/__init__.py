"""The scheduler of one department: what it does with the hosts that it holds, and how many it wants.

Each line stands on those below it, and on none above:

edge_batch, edge_web   what a shell adds: signals in, questions answered
explain/               why jobs wait and when they start: the batch core asked, or run forward on a copy
batch/     web/        the two cores (ST Server and WS Server)
policies/              orders, victims, scaling rules: what can be chosen, each a file
derived/               room, the queue, what will be free: views of custody and of jobs that policies look at
"""
