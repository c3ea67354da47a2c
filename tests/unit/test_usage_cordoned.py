"""Cordoned hosts in what departments had: held, and neither lent nor borrowed."""

from __future__ import annotations

from schemas import facts as f
from tests.support.world import batch
from tests.unit.test_usage import Office


def test_a_cordoned_host_is_neither_lent_nor_borrowed() -> None:
    """All four hosts are hpc's own, and it holds them all."""
    office = Office(batch("hpc"))
    office.world.grant("hpc", *office.hosts)
    for _ in range(2):
        office.world.cordon("h1")
        office.world.now += 100
        office.world.write("admission", f.HostUncordoned(host="h1", reason="", user="root"))
        office.world.now += 10
    hpc = office.of()
    assert (hpc["held_s"], hpc["own_s"]) == (4 * 220.0, 3 * 200.0 + 4 * 20.0)
    assert (hpc["lent_s"], hpc["borrowed_s"]) == (0.0, 0.0)
    office.world.cordon("h1")
    office.world.write("scheduler.hpc", f.HostReleased(host="h1"), f.HostReleased(host="h2"))
    office.world.write("executor", f.HostCleared(host="h1"), f.HostCleared(host="h2"))
    office.world.now += 10  # of the three that are divided it has lent the one that it gave back
    assert (office.of()["lent_s"], office.of()["borrowed_s"]) == (10.0, 0.0)
