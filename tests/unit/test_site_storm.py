"""Starts that fail on most hosts at once: the site's fault (`executor.site_fault`, `scheduler.batch.launches`).

The case that was seen: 24 hosts, every deploy fails for 11 s.  Five of five queued jobs were killed for good after 11 attempts
each in 7.2 s, and 15 hosts were quarantined for up to 8 minutes.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.domain.text import sentence
from services.executor.core.calls import Deploy
from services.executor.core.site_fault import FADES_S, TRY_MAX_S, TRY_S, UNWANTED
from services.scheduler.lookahead.why import why
from tests.support.site_storm import FAILED, REFUSED, STEP_S, Fails, How, Storm, boot_fails, nobody, refused

OUTAGE_S = 11.0
KINDS: list[tuple[Fails, str]] = [(refused, REFUSED), (boot_fails, FAILED)]


def outage(fails: Fails, jobs: int = 5, hosts: int = 24) -> Storm:
    """So many jobs are queued while every start fails, for `OUTAGE_S`."""
    site = Storm(hosts)
    for _ in range(jobs):
        site.submit()
    site.fails = fails
    site.pass_time(OUTAGE_S)
    return site


@pytest.mark.parametrize(("fails", "words"), KINDS)
def test_a_short_fault_of_the_site_ends_no_job_and_sets_no_host_apart(fails: Fails, words: str) -> None:
    site = outage(fails)
    [paused] = site.told(f.StartsPaused)
    assert isinstance(paused, f.StartsPaused)
    assert (paused.failed, paused.tried, paused.why) == (4, 4, words)
    assert site.set_apart() == []
    site.fails = nobody
    site.pass_time(TRY_MAX_S + 1.0)
    assert site.running() == ["1", "2", "3", "4", "5"]
    assert site.told(f.StartsResumed) == [f.StartsResumed(why="a start succeeded")]
    assert site.told(f.HostQuarantined) == []
    assert all(
        fact.disposal is Disposal.REQUEUE for fact in site.told(f.AttemptClosed) if isinstance(fact, f.AttemptClosed)
    )
    assert all(again.requeues == again.faults == 0 for again in site.queue.state.again.values())


def test_while_starts_are_paused_one_is_tried_at_a_time_and_by_turns() -> None:
    site = outage(refused)
    tries = [(at, unit) for at, unit, _ in site.deploys[5:]]
    assert 3 <= len(tries) <= 6
    assert all(later - at >= 0.5 for (at, _), (later, _) in pairwise(tries))
    assert len({unit for _, unit in tries}) == len(tries)


def test_a_vm_on_hold_whose_deploy_is_refused_goes_on_waiting() -> None:
    site = outage(refused)
    assert [site.unit(job).attempt for job in ("4", "5")] == [1, 1]
    assert all(site.unit(job).attempt <= 2 for job in ("1", "2", "3"))


def test_all_that_wait_start_at_once_when_the_first_has() -> None:
    site = outage(refused, jobs=20)
    begun = len(site.deploys)
    site.fails = nobody
    site.pass_time(TRY_MAX_S + 1.0)
    first, *others = site.deploys[begun:]
    assert len(others) == 19
    assert max(at for at, _, _ in others) - first[0] <= 4 * STEP_S


def test_a_long_fault_is_asked_of_rarely_and_quarantines_nobody_either() -> None:
    site = outage(boot_fails)
    begun = len(site.deploys)
    site.pass_time(300.0)
    assert len(site.deploys) - begun <= 300.0 / TRY_MAX_S + 1
    assert site.set_apart() == []
    site.fails = nobody
    site.pass_time(TRY_MAX_S + 1.0)
    assert len(site.running()) == 5


def test_a_host_that_the_same_storm_set_apart_is_let_off() -> None:
    site = Storm(24)
    site.fails = refused
    site.submit()
    hosts = site.core.host_reconciler
    for _ in range(2):  # the next one is the third in a row there
        hosts.probation.failed("h5", site.now, hosts.rules)
    site.core.host_reconciler.start_failed("h5", "7/1/0", site.now, REFUSED)
    site.pass_time(STEP_S)
    assert site.set_apart() == ["h5"]
    site.submit()
    site.submit()
    site.pass_time(1.0)
    assert site.told(f.StartsPaused) != []
    assert site.set_apart() == []
    assert site.told(f.HostQuarantined)[-1] == f.HostQuarantined(host="h5", reason="it was the site's fault", until=0.0)


def test_one_host_that_fails_is_quarantined_and_nobody_else_is_kept_waiting() -> None:
    site = Storm(6)

    def one(deploy: Deploy) -> How:
        return "failed" if deploy.host == "h0" else ""

    site.fails = one
    for _ in range(4):
        jobs = [site.submit() for _ in range(6)]
        site.pass_time(2.0)
        for job in [job for job in jobs if job in site.running()]:
            site.end(job)
        site.pass_time(1.0)
    assert site.set_apart() == ["h0"]
    assert site.told(f.StartsPaused) == []


def test_a_rack_of_half_the_hosts_is_no_site() -> None:
    site = Storm(8)

    def rack(deploy: Deploy) -> How:
        return "refused" if int(deploy.host[1:]) < 4 else ""

    site.fails = rack
    for _ in range(8):
        site.submit()
    site.pass_time(30.0)
    assert site.told(f.StartsPaused) == []
    assert set(site.set_apart()) == {"h0", "h1", "h2", "h3"}
    assert len(site.running()) == 4


def test_one_job_that_starts_nowhere_is_not_the_site_and_waits_longer_each_time() -> None:
    site = outage(boot_fails, jobs=1)
    assert site.told(f.StartsPaused) == []
    assert site.set_apart() == []
    times = [at for at, _, _ in site.deploys]
    assert [round(later - at) for at, later in pairwise(times[1:])] == [1, 2, 4]
    assert len({host for _, _, host in site.deploys}) == len(times), "each time on another host"


def test_an_array_is_one_job() -> None:
    site = Storm(24)
    site.submit(array=(1, 2, 3, 4, 5))
    site.fails = refused
    site.pass_time(1.0)
    assert site.told(f.StartsPaused) == []


def test_two_hosts_are_a_site_if_there_are_no_more() -> None:
    site = outage(refused, jobs=2, hosts=2)
    assert len(site.told(f.StartsPaused)) == 1
    assert len(Storm(1).custody.state.hosts) == 1
    assert outage(refused, jobs=3, hosts=1).told(f.StartsPaused) == []


def test_a_pause_that_nobody_tests_ends() -> None:
    site = outage(refused)
    for job in ("1", "2", "3", "4", "5"):
        site.write("admission", f.JobCancelled(job=job, user="a"))
    site.pass_time(FADES_S + 10.0)
    assert site.told(f.StartsResumed) == [f.StartsResumed(why=UNWANTED)]


def test_a_new_leader_knows_of_the_pause_and_tries_at_once() -> None:
    site = outage(refused)
    site.core.take_over(site.now)
    site.see_hosts()
    site.audit()
    begun = len(site.deploys)
    site.pass_time(0.3)
    assert len(site.deploys) == begun + 1
    site.fails = nobody
    site.pass_time(TRY_MAX_S + 1.0)
    assert len(site.running()) == 5


def test_a_try_that_says_nothing_keeps_nobody_from_the_next() -> None:
    site = outage(refused)

    def hangs(deploy: Deploy) -> How:
        return "hangs"

    site.fails = hangs
    site.pass_time(TRY_MAX_S + 1.0)
    begun = len(site.deploys)
    site.fails = nobody
    site.pass_time(TRY_S - 2 * TRY_MAX_S)
    assert len(site.deploys) == begun
    site.pass_time(3 * TRY_MAX_S)
    assert len(site.running()) >= 4


@pytest.mark.parametrize(("fails", "words"), KINDS)
def test_everybody_who_asks_is_told_opennebulas_own_words(fails: Fails, words: str) -> None:
    site = outage(fails)
    starting = [why(site.queue, job, site.now) for job in ("1", "2", "3", "4", "5") if site.unit(job).state == "open"]
    assert starting
    for [reason] in starting:
        assert type(reason) is because.Starting
        assert "starts are paused in the whole cloud since" in sentence(reason)
        assert words in sentence(reason)
    closed = site.told(f.AttemptClosed)[0]
    assert isinstance(closed, f.AttemptClosed)
    assert sentence(closed.why).startswith("its VM did not start: ")
    assert words.rstrip(".") in sentence(closed.why)
