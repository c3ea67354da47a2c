"""Victims: as few node-seconds of work as possible are lost.

Source: L. Wolsey, An analysis of the greedy algorithm for the submodular set covering problem, Combinatorica 2, 1982.

Theory of operation
  Which jobs free enough hosts at the least loss is the covering knapsack problem, hard in general.  The greedy for it takes
  what is cheapest for each host that it frees and that is still needed, again and again, and then adds back what was not
  needed.  Where each job has its hosts to itself, what it loses is at most H(n) = 1 + 1/2 + … + 1/n times the least possible,
  n the hosts asked for (the test compares with all choices), and mostly the least.

Rules
  1. A job costs nodes · what would be lost of its running time: nothing if it would be suspended, or has not begun; only what
     came after its last checkpoint if it has made one (`phoenix checkpoint`) and would continue from it.
  2. A host costs what the jobs on it cost, divided by the hosts that their end would empty, of those that are still needed.
     So a wide job that has just begun goes before four narrow old ones.
  3. Of equals the fewer nodes, then the job submitted last.
  4. A victim that is not needed after all is spared, the one that loses most first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad, choose_by, newest_first


def choose(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    """`count` hosts (all, if there are no more) and the victims that it takes."""
    return choose_by(_price, hosts, candidates, count, spare=True)


def _price(lost: Sequence[Candidate], useful: Callable[[], int]) -> tuple[float, ...]:
    return (
        sum(c.nodes * c.lost_s for c in lost) / useful(),  # 1. node-seconds for each host that is needed
        sum(c.nodes for c in lost),  # 2. fewer nodes
        *min(newest_first(c.unit) for c in lost),  # 3. the job submitted last goes first
    )
