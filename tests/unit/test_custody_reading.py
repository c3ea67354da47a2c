"""What others ask of the fold: departments, quotas, cordoned hosts, room, and VMs by the names that their guests go by."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas.config import CloudConfig, Department
from schemas.size import Size
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host, Quota
from tests.unit.test_custody_rules import (
    MOVES,
    NEXT,
    QUOTA_1,
    RESUMES,
    RUNNING,
    A,
    E,
    P,
    Step,
    bound,
    granted,
    host,
    play,
)

HPC_AND_WEB = (Department(name="hpc", kind="batch"), Department(name="web", kind="web"))
ADOPTED: Step = (P, f.ConfigAdopted(cloud="c", custody_rules=3, config=CloudConfig(name="c", departments=HPC_AND_WEB)))


def cordon(name: str) -> Step:
    return A, f.HostCordoned(host=name, reason="fan", user="o")


def test_departments_are_those_of_the_configuration_in_force() -> None:
    before, after = Custody(), play([ADOPTED])[0]
    assert (before.departments, before.department("hpc")) == ((), None)
    assert (after.departments, after.department("web"), after.department("bio")) == (HPC_AND_WEB, HPC_AND_WEB[1], None)


def test_a_department_without_a_quota_may_keep_nothing() -> None:
    custody, _ = play([*granted(), QUOTA_1])
    assert (custody.held("hpc"), custody.quota("hpc").hosts) == (1, 1)
    assert (custody.held("web"), custody.quota("web")) == (0, Quota())


def test_cordoned_hosts_stand_beside_the_quota_of_who_holds_them() -> None:
    quarantined = (E, f.HostQuarantined(host="h4", reason="r", until=99.0))
    hosts = [*granted("h3"), *granted("h1"), *granted("h2"), *granted("h4"), *granted("h5", "web"), *host("h6")]
    set_apart = [*map(cordon, ("h3", "h1", "h5", "h6")), quarantined]
    custody, _ = play([ADOPTED, *hosts, *set_apart])
    assert (custody.cordoned("hpc"), custody.cordoned("web")) == (["h1", "h3"], ["h5"])
    unnamed, _ = play([*hosts, *set_apart])
    assert unnamed.cordoned("hpc") == []  # all its hosts go


@pytest.mark.parametrize(
    ("cores", "memory_mb", "exclusive", "fits"),
    [
        (3, 900, False, True),
        (4, 900, False, False),
        (3, 901, False, False),
        (1, 1, True, False),
    ],
)
def test_what_fits_beside_the_live_attempts(cores: int, memory_mb: int, exclusive: bool, fits: bool) -> None:
    custody, _ = play(RUNNING)
    assert custody.fits(custody.state.hosts["h1"], Size(cores, memory_mb), exclusive) is fits
    empty = Host(name="h2", size=Size(cores, memory_mb))
    assert custody.fits(empty, Size(cores, memory_mb), exclusive)
    assert not custody.fits(Host(name="h3", size=Size(4, 1000), exclusive=True), Size(cores, memory_mb), exclusive)


def test_a_guest_is_found_by_the_name_that_it_goes_by() -> None:
    """Its VM's own; after a resume or a move the one before; after a take-over also the former one, which it may still use."""
    for goes_on in (RESUMES, MOVES):
        custody, _ = play([*goes_on, bound()])
        vm = custody.state.vms["1/2/0"]
        assert (custody.bound("1", 1, 0), custody.bound("1", 2, 0), custody.bound("1", 3, 0)) == (vm, vm, None)
        assert custody.taken_over("1", 1, 0) is None
    custody, _ = play([*NEXT, bound("2", 1, "h1")])
    vm = custody.state.vms["2/1/0"]
    assert (custody.bound("1", 1, 0), custody.bound("2", 1, 0)) == (None, vm)
    assert (custody.taken_over("1", 1, 0), custody.taken_over("2", 1, 0)) == (vm, None)
