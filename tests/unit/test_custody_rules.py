"""Every precondition of PROTOCOL.md's two tables: a story, a fact, and the verdict.

The last test takes each precondition out, one at a time, and demands that some story here goes red: a rule without a test
that fails without it is not a rule.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, OnTerm
from schemas.facts import Fact
from schemas.facts_base import CustodyFact
from schemas.releases import Release
from services.domain.custody.check import check
from services.domain.custody.custody import Custody
from services.domain.custody.fold import TABLE, fold_fact
from services.domain.custody.meta import Void
from services.domain.specs import TooMany

WHY = because.Reclaimed()
E, P, A, HPC, WEB = "executor", "provisioner", "admission", "scheduler.hpc", "scheduler.web"
Step = tuple[str, Fact]


class Story(NamedTuple):
    name: str
    before: list[Step]
    step: Step
    verdict: Void | None


def host(name: str = "h1", cores: int = 4, memory_mb: int = 1000) -> list[Step]:
    """A host that has been described and cleared: free."""
    described = f.HostDescribed(host=name, one_id=int(name[1:]), cores=cores, memory_mb=memory_mb)
    return [(E, described), (E, f.HostCleared(host=name))]


def granted(name: str = "h1", dept: str = "hpc", **kw: Any) -> list[Step]:
    return [*host(name, **kw), (P, f.HostGranted(host=name, dept=dept))]


def job(number: str = "1", **kw: Any) -> Step:
    given = {"dept": "hpc", "user": "alice", "name": "j", "payload": "p", "walltime_s": 60.0, **kw}
    return A, f.JobSubmitted(job=number, **given)


def placed(unit: str = "1", attempt: int = 1, hosts: tuple[str, ...] = ("h1",), **kw: Any) -> Step:
    given = {"cores": 1, "memory_mb": 100, **kw}
    return WEB if "." in unit else HPC, f.UnitPlaced(unit=unit, attempt=attempt, hosts=hosts, **given)


def closed(unit: str = "1", attempt: int = 1, disposal: f.Disposal = f.Disposal.REQUEUE) -> Step:
    return HPC, f.AttemptClosed(unit=unit, attempt=attempt, disposal=disposal, why=WHY)


def reported(attempt: int = 1, exit: int = 0, unit: str = "1", terminated: bool = False) -> Step:
    return A, f.AttemptReported(unit=unit, attempt=attempt, exit=exit, terminated=terminated)


def allocated(attempt: int = 1, rank: int = 0, vm: int = 7, unit: str = "1") -> Step:
    return E, f.VmAllocated(unit=unit, attempt=attempt, rank=rank, vm=vm, host="h1")


def ended(attempt: int = 1) -> Step:
    return E, f.VmEnded(unit="1", attempt=attempt, rank=0, why="done")


RUNNING = [*granted(), job(), placed(), allocated()]
QUOTA_0 = (P, f.QuotaChanged(dept="hpc", hosts=0, by=1.0))
QUOTA_1 = (P, f.QuotaChanged(dept="hpc", hosts=1, by=1.0))
SEIZE = (P, f.HostSeized(host="h1", dept="hpc"))
RELEASE = (HPC, f.HostReleased(host="h1"))
LOST = (E, f.HostLost(host="h1", reason="no answer"))
CLEAR = (E, f.HostCleared(host="h1"))
HOLD = (A, f.JobHeld(job="1", user="alice"))
CANCEL = (A, f.JobCancelled(job="1", user="alice"))

INSTANCE = [*granted(dept="web"), placed("web.1")]
STOPPED = (WEB, closed("web.1", disposal=f.Disposal.STOPPED)[1])

# From rules 2 on a VM may be bound to one attempt after another.
RULES_2 = [(P, f.ConfigAdopted(cloud="c", custody_rules=2, config=CloudConfig(name="c", departments=())))]
S_1 = closed(disposal=f.Disposal.SUSPEND)
SAVED = [*RULES_2, *RUNNING, S_1, (E, f.VmEnded(unit="1", attempt=1, rank=0, why=f.SUSPENDED))]
RESUMES = [*SAVED, *granted("h2"), placed(attempt=2, hosts=("h2",))]
MOVES = [*RULES_2, *RUNNING, closed(disposal=f.Disposal.MIGRATE), *granted("h2"), placed(attempt=2, hosts=("h2",))]


def rules_3(on_term: OnTerm = "stop") -> list[Step]:
    """From rules 3 on exit 0 after SIGTERM is no success, unless the job or its department says so."""
    department = Department(name="hpc", kind="batch", batch=BatchPolicy(on_term=on_term))
    return [(P, f.ConfigAdopted(cloud="c", custody_rules=3, config=CloudConfig(name="c", departments=(department,))))]


def adopted(*names: str, rules: int = 4) -> Step:
    """A configuration that names these departments."""
    departments = tuple(Department(name=name, kind="batch") for name in names)
    config = CloudConfig(name="c", departments=departments)
    return P, f.ConfigAdopted(cloud="c", custody_rules=rules, config=config)


TERMINATED = reported(terminated=True)
CLOSE = (A, f.DepartmentClosed(dept="hpc"))
CORDON = (A, f.HostCordoned(host="h1", reason="fan", user="o"))
UNCORDON = (A, f.HostUncordoned(host="h1", reason="", user="o"))
DRAINED_2, DRAINED_99 = (
    (A, f.HostCordoned(host="h1", reason="fan", user="o", drain=True, until=at)) for at in (2.0, 99.0)
)
CORDONED = [*rules_3(), *granted(), QUOTA_1, CORDON]
WIDE = [job(nodes=2), placed(hosts=("h1", "h2")), allocated(), allocated(rank=1, vm=8)]
CORDONED_BY_2 = [*rules_3(), *granted(), *granted("h2"), *WIDE, CORDON]
STAYS = [*CORDONED_BY_2, *granted("h3"), closed(disposal=f.Disposal.MIGRATE)]
RUNNING_3 = [*rules_3(), *RUNNING]
WISHES = [*rules_3(), *granted(), job(on_term="complete"), placed(), allocated()]
H1_H2 = ("h1", "h2")
TWO_HELD = [*granted(), *granted("h2"), job()]
ONE_ON_2 = placed(hosts=("h2",), cores=3)
FAIL = (A, f.VmFailed(unit="1", attempt=1, rank=0, why="it has booted again"))
PARK = (A, f.VmParked(unit="1", attempt=1, rank=0))
COMPLETED = [*RULES_2, *RUNNING, reported()]
PARKED = [*COMPLETED, PARK]
NEXT = [*PARKED, job("2"), placed("2")]


def draining(unit: str = "web.1", attempt: int = 1, writer: str = WEB) -> Step:
    return writer, f.InstanceDraining(unit=unit, attempt=attempt, until=99.0, reason=WHY)


def heard(
    unit: str = "web.1", attempt: int = 1, state: Literal["drained", "unreachable", "reachable"] = "drained"
) -> Step:
    return A, f.InstanceReported(unit=unit, attempt=attempt, state=state, user="balancer")


def release(number: int, dept: str = "web") -> Step:
    return A, f.ReleaseRequested(dept=dept, release=number, user="wes", content=Release(image="shop"))


def rolling(dept: str, writer: str = WEB) -> Step:
    return writer, f.ReleaseChanged(dept=dept, release=1, state="rolling", reason=WHY)


def bound(unit: str = "1", attempt: int = 2, host: str = "h2", rank: int = 0, vm: int = 7) -> Step:
    return E, f.VmAllocated(unit=unit, attempt=attempt, rank=rank, vm=vm, host=host)


# Jobs 1 and 2, each with a VM on its host; and what was saved of two jobs, or of both ranks of one.
BESIDE = bound("2", 1, vm=8)
TWO = [*RUNNING, *granted("h2"), job("2"), placed("2", hosts=("h2",)), BESIDE]
CORDON_2 = (A, f.HostCordoned(host="h2", reason="fan", user="o"))
SAVED_TWO = [*RULES_2, *TWO, S_1, (E, f.VmEnded(unit="1", attempt=1, rank=0, why=f.SUSPENDED)),
             closed("2", disposal=f.Disposal.SUSPEND), (E, f.VmEnded(unit="2", attempt=1, rank=0, why=f.SUSPENDED))]  # fmt: skip
SAVED_GANG = [*RULES_2, *granted(), *granted("h2"), *WIDE, S_1,
              *((E, f.VmEnded(unit="1", attempt=1, rank=rank, why=f.SUSPENDED)) for rank in (0, 1)),
              placed(attempt=2, hosts=("h2", "h1"))]  # fmt: skip
REGRANTED: list[Step] = [RELEASE, CLEAR, (P, f.HostGranted(host="h1", dept="bio"))]

ARRAY = job(array=(1, 2, 3))
OF_ARRAYS = [
    lambda elements, kind=kind: kind(job="1", dept="hpc", elements=elements, user="a")
    for kind in (f.ArrayHeld, f.ArrayResumed, f.ArrayCancelled)
]


STORIES = [
    # hosts
    Story("a free host is granted", host(), (P, f.HostGranted(host="h1", dept="web")), None),
    Story("an unknown host is not granted", [], (P, f.HostGranted(host="h1", dept="web")), Void.HOST_UNKNOWN),
    Story("a described host is not yet free", host()[:1], (P, f.HostGranted(host="h1", dept="web")), Void.HOST_NOT_FREE),
    Story("a held host is not granted again", granted(), (P, f.HostGranted(host="h1", dept="web")), Void.HOST_NOT_FREE),
    Story("the holder releases", granted(), RELEASE, None),
    Story("another department releases nothing", granted(dept="web"), RELEASE, Void.HOST_NOT_HELD),
    Story("a draining host is not released twice", [*granted(), RELEASE], RELEASE, Void.HOST_NOT_HELD),
    Story("above its quota a host is seized", [*granted(), QUOTA_0], SEIZE, None),
    Story("within its quota none is", [*granted(), QUOTA_1], SEIZE, Void.WITHIN_QUOTA),
    Story("nobody may keep any before there is a quota", granted(), SEIZE, None),
    Story("a withdrawn claim voids the seizure", [*granted(), QUOTA_1, QUOTA_0, QUOTA_1], SEIZE, Void.WITHIN_QUOTA),
    Story("seized from whom does not hold it", [*granted(dept="web"), QUOTA_0], SEIZE, Void.HOST_NOT_HELD),
    Story("a draining host is cleared", [*granted(), RELEASE], CLEAR, None),
    Story("a lost host is cleared", [*host(), LOST], CLEAR, None),
    Story("a held host is not cleared", granted(), CLEAR, Void.HOST_NOT_CLEARABLE),
    Story("a free host is not cleared", host(), CLEAR, Void.HOST_NOT_CLEARABLE),
    Story("an unknown host is not cleared", [], CLEAR, Void.HOST_UNKNOWN),
    Story("an unknown host cannot be lost", [], LOST, Void.HOST_UNKNOWN),
    Story("a held host can be lost", granted(), LOST, None),
    Story("a drained host is seized once its deadline has passed", [*CORDONED, DRAINED_2], SEIZE, None),
    Story("not before", [*CORDONED, DRAINED_99], SEIZE, Void.WITHIN_QUOTA),
    Story("nor if it is cordoned alone", CORDONED, SEIZE, Void.WITHIN_QUOTA),
    Story("nor under rules 2", [*granted(), QUOTA_1, DRAINED_2], SEIZE, Void.WITHIN_QUOTA),
    Story("an unknown host cannot be cordoned", [], (A, f.HostCordoned(host="h1", reason="r", user="o")), Void.HOST_UNKNOWN),
    Story("nor uncordoned", [], (A, f.HostUncordoned(host="h1", reason="r", user="o")), Void.HOST_UNKNOWN),
    Story("nor quarantined", [], (E, f.HostQuarantined(host="h1", reason="r", until=1.0)), Void.HOST_UNKNOWN),
    Story("a free host is removed", host(), (E, f.HostRemoved(host="h1")), None),
    Story("a cordoned one too, and nothing of it stays", [*host(), CORDON], (E, f.HostRemoved(host="h1")), None),
    Story("an unknown host is not removed", [], (E, f.HostRemoved(host="h1")), Void.HOST_UNKNOWN),
    Story("nor released, nor seized", [], RELEASE, Void.HOST_UNKNOWN),
    Story("a held host is not removed", granted(), (E, f.HostRemoved(host="h1")), Void.HOST_NOT_REMOVABLE),
    # placement
    Story("a pending job is placed on a held host", [*granted(), job()], placed(), None),
    Story("not on a free host", [*host(), job()], placed(), Void.HOST_NOT_HELD),
    Story("not on another department's host", [*granted(dept="web"), job()], placed(), Void.HOST_NOT_HELD),
    Story("not on one that it has given back", [*granted(), job(), RELEASE], placed(), Void.HOST_NOT_HELD),
    Story("one bad host of a gang voids it", [*granted(), *host("h2"), job(nodes=2)], placed(hosts=("h1", "h2")), Void.HOST_NOT_HELD),
    Story("a gang on two held hosts", [*granted(), *granted("h2"), job(nodes=2)], placed(hosts=("h1", "h2")), None),
    Story("a gang never twice on one host", [*granted(), job(nodes=2)], placed(hosts=("h1", "h1")), Void.WRONG_SHAPE),
    Story("as many hosts as nodes", [*granted(), *granted("h2"), job()], placed(hosts=("h1", "h2")), Void.WRONG_SHAPE),
    Story("an unknown job", granted(), placed(), Void.UNIT_UNKNOWN),
    Story("another department's job", [*granted(), job(dept="other")], placed(), Void.NOT_ITS_DEPARTMENT),
    Story("a held job", [*granted(), job(), HOLD], placed(), Void.UNIT_HELD),
    Story("a job submitted as held", [*granted(), job(held=True)], placed(), Void.UNIT_HELD),
    Story("a released job", [*granted(), job(), HOLD, (A, f.JobResumed(job="1", user="a"))], placed(), None),
    Story("a cancelled job", [*granted(), job(), CANCEL], placed(), Void.UNIT_FINAL),
    Story("a job cancelled while it ran, broken", [*RUNNING, CANCEL, LOST, *granted("h2")], placed(attempt=2, hosts=("h2",)), Void.UNIT_CANCELLED),
    Story("a job with an open attempt", [*granted(), job(), placed()], placed(attempt=2), Void.UNIT_NOT_PENDING),
    Story("attempt numbers have no gap", [*granted(), job()], placed(attempt=2), Void.ATTEMPT_NOT_NEXT),
    Story("an attempt number is used once", [*granted(), job(), placed(), closed()], placed(attempt=1), Void.ATTEMPT_NOT_NEXT),
    Story("a void placement used no number", [*granted(), job(), placed(hosts=("h9",))], placed(attempt=1), None),
    Story("a full host", [*granted(), job(), placed(cores=3), job("2")], placed("2", cores=2), Void.NO_ROOM),
    Story("a host without memory", [*granted(), job(), placed(memory_mb=900), job("2")], placed("2", memory_mb=101), Void.NO_ROOM),
    Story("one with exactly as much is enough", [*granted(), job(), placed(memory_mb=900), job("2")], placed("2", memory_mb=100), None),
    Story("beside another in its room", [*granted(), job(), placed(cores=3), job("2")], placed("2", cores=1), None),
    Story("exclusive needs it empty", [*granted(), job(), placed(), job("2")], placed("2", exclusive=True), Void.NO_ROOM),
    Story("each host of a gang has room", [*TWO_HELD, ONE_ON_2, job("2", nodes=2)], placed("2", hosts=H1_H2, cores=2), Void.NO_ROOM),
    Story("also a smaller one", [*granted(), *granted("h2", cores=1), job(nodes=2)], placed(hosts=H1_H2, cores=2), Void.NO_ROOM),
    Story(
        "also one that is taken whole, and has as much in use",
        [*TWO_HELD, placed(), job("2", nodes=2), job("3"), placed("3", hosts=("h2",), exclusive=True)],
        placed("2", hosts=H1_H2),
        Void.NO_ROOM,
    ),
    Story("nothing beside an exclusive one", [*granted(), job(), placed(exclusive=True), job("2")], placed("2"), Void.NO_ROOM),
    Story("a broken attempt occupies nothing", [*RUNNING, ended(), job("2")], placed("2", cores=4), None),
    Story("a completed job", [*RUNNING, reported()], placed(attempt=2), Void.UNIT_FINAL),
    Story("nothing new is placed on a cordoned host", [*CORDONED, job()], placed(), Void.HOST_CORDONED),
    Story("of a gang neither", [*CORDONED, *granted("h2"), job(nodes=2)], placed(hosts=("h1", "h2")), Void.HOST_CORDONED),
    Story("until it is in use again", [*CORDONED, UNCORDON, job()], placed(), None),
    Story("under rules 2 it was", [*granted(), CORDON, job()], placed(), None),
    Story("a rank that stays is not new", STAYS, placed(attempt=2, hosts=("h1", "h3")), None),
    Story("one whose VM has ended is", [*STAYS, ended()], placed(attempt=2, hosts=("h1", "h3")), Void.HOST_CORDONED),
    Story("nor is one that begins anew", [*CORDONED_BY_2, closed()], placed(attempt=2, hosts=("h1", "h2")), Void.HOST_CORDONED),
    Story("nor one that another job's VM stays beside", [*rules_3(), *TWO, CORDON_2, closed(disposal=f.Disposal.MIGRATE)], placed(attempt=2, hosts=("h2",)), Void.HOST_CORDONED),
    Story("one that stays beside another job's VM is not", [*CORDONED_BY_2[:-1], job("2"), placed("2"), bound("2", 1, "h1", vm=9), CORDON, *granted("h3"), STAYS[-1]],
          placed(attempt=2, hosts=("h1", "h3")), None),
    Story("a VM of an earlier life is new there", [*rules_3(), *RUNNING, *granted("h2"), closed(), placed(attempt=2, hosts=("h2",)), bound(vm=8), CORDON,
          closed(attempt=2, disposal=f.Disposal.MIGRATE)], placed(attempt=3), Void.HOST_CORDONED),
    Story("an instance is always new", [*rules_3(), *granted(dept="web"), CORDON], placed("web.1"), Void.HOST_CORDONED),
    # instances
    Story("an instance is born by its placement", granted(dept="web"), placed("web.1"), None),
    Story("an instance's number is never used again", [*granted(dept="web"), placed("web.2")], placed("web.1"), Void.ATTEMPT_NOT_NEXT),
    Story("its first attempt is number 1", granted(dept="web"), placed("web.1", attempt=2), Void.ATTEMPT_NOT_NEXT),
    Story("it needs a host", granted(dept="web"), placed("web.1", hosts=()), Void.WRONG_SHAPE),
    Story("an instance of another department", granted(dept="web"), (WEB, f.UnitPlaced(unit="other.1", attempt=1, hosts=("h1",), cores=1, memory_mb=1)), Void.NOT_ITS_DEPARTMENT),
    Story("a live instance drains", INSTANCE, draining(), None),
    Story("and is still live", [*INSTANCE, draining()], STOPPED, None),
    Story("an unknown instance does not drain", [], draining(), Void.UNIT_UNKNOWN),
    Story("a job does not drain", RUNNING, draining("1", writer=HPC), Void.UNIT_UNKNOWN),
    Story("another department drains nothing", INSTANCE, draining(writer="scheduler.shop"), Void.NOT_ITS_DEPARTMENT),
    Story("a stopped instance does not drain", [*INSTANCE, STOPPED], draining(), Void.ATTEMPT_NOT_LIVE),
    Story("nor one that is broken", [*INSTANCE, LOST], draining(), Void.ATTEMPT_NOT_LIVE),
    Story("nor as another attempt", INSTANCE, draining(attempt=2), Void.ATTEMPT_NOT_LIVE),
    Story("a balancer's word on a live instance", INSTANCE, heard(), None),
    Story("on one that cannot be reached", INSTANCE, heard(state="unreachable"), None),
    Story("not on an unknown one", [], heard(), Void.UNIT_UNKNOWN),
    Story("not on a job", RUNNING, heard("1"), Void.UNIT_UNKNOWN),
    Story("too late for a stopped one", [*INSTANCE, STOPPED], heard(), Void.ATTEMPT_NOT_LIVE),
    # releases
    Story("a first release", [], release(1), None),
    Story("a newer release", [release(1)], release(2), None),
    Story("two doors number at once", [release(1)], release(1), Void.RELEASE_NOT_NEWER),
    Story("each department has its numbers", [release(1)], release(1, "shop"), None),
    Story("a department says how far its release is", [release(1)], rolling("web"), None),
    Story("and nobody else's", [release(1, "shop")], rolling("shop"), Void.NOT_ITS_DEPARTMENT),
    # attempts
    Story("a live attempt begins", RUNNING, (A, f.AttemptBegan(unit="1", attempt=1)), None),
    Story("a broken one does not", [*RUNNING, ended()], (A, f.AttemptBegan(unit="1", attempt=1)), Void.ATTEMPT_NOT_LIVE),
    Story("an older one does not", [*RUNNING, closed(), placed(attempt=2)], (A, f.AttemptBegan(unit="1", attempt=1)), Void.ATTEMPT_NOT_LIVE),
    Story("nor does one of an unknown job", [], (A, f.AttemptBegan(unit="1", attempt=1)), Void.ATTEMPT_NOT_LIVE),
    Story("an open attempt is closed", RUNNING, closed(), None),
    Story("a broken attempt is closed", [*RUNNING, ended()], closed(), None),
    Story("the first closing fact wins", [*RUNNING, reported()], closed(), Void.ATTEMPT_NOT_OPEN),
    Story("an older attempt is not closed", [*RUNNING, closed(), placed(attempt=2)], closed(), Void.ATTEMPT_NOT_OPEN),
    Story("another department closes nothing", RUNNING, (WEB, closed()[1]), Void.NOT_ITS_DEPARTMENT),
    Story("an unknown unit is not closed", [], closed(), Void.UNIT_UNKNOWN),
    Story("success of a live attempt", RUNNING, reported(), None),
    Story("late success of a requeued attempt counts", [*RUNNING, closed()], reported(), None),
    Story("until the next one is placed", [*RUNNING, closed(), placed(attempt=2)], reported(), Void.ATTEMPT_NOT_LATEST),
    Story("not of a killed job", [*RUNNING, closed(disposal=f.Disposal.KILL)], reported(), Void.UNIT_FINAL),
    Story("a job that never ran reports nothing", [job()], reported(attempt=0), Void.ATTEMPT_NOT_LATEST),
    Story("nor does an unknown one", [], reported(), Void.UNIT_UNKNOWN),
    Story("failure of a live attempt", RUNNING, reported(exit=3), None),
    Story("a preempted script's 143 is no failure", [*RUNNING, RELEASE], reported(exit=143), Void.ATTEMPT_NOT_LIVE),
    Story("nor after the close", [*RUNNING, closed()], reported(exit=143), Void.ATTEMPT_NOT_LIVE),
    Story("success before SIGTERM", RUNNING_3, reported(), None),
    Story("success before SIGTERM counts after the close", [*RUNNING_3, closed()], reported(), None),
    Story("exit 0 after SIGTERM is no success", [*RUNNING_3, closed()], TERMINATED, Void.ATTEMPT_STOPPED),
    Story("nor of an attempt that is broken", [*RUNNING_3, QUOTA_0, SEIZE], TERMINATED, Void.ATTEMPT_STOPPED),
    Story("nor of a lost host's", [*RUNNING_3, LOST], TERMINATED, Void.ATTEMPT_STOPPED),
    Story("nor of a live one, whoever shut the VM down", RUNNING_3, TERMINATED, Void.ATTEMPT_STOPPED),
    Story("nor of one that is to go on elsewhere", [*RUNNING_3, S_1], TERMINATED, Void.ATTEMPT_STOPPED),
    Story("nor of one that was to be moved, and is placed again", [*RUNNING_3, closed(disposal=f.Disposal.MIGRATE), *granted("h2"), placed(attempt=2, hosts=("h2",))],
          reported(attempt=2, terminated=True), Void.ATTEMPT_STOPPED),
    Story("nor of a timed out job, which is final", [*RUNNING_3, closed(disposal=f.Disposal.TIMEOUT)], TERMINATED, Void.UNIT_FINAL),
    Story("a job may say that it is one", [*WISHES, closed()], TERMINATED, None),
    Story("and so may its department", [*rules_3("complete"), *RUNNING, closed()], TERMINATED, None),
    Story("a job's word is above its department's", [*rules_3("complete"), *granted(), job(on_term="stop"), placed(), closed()], TERMINATED, Void.ATTEMPT_STOPPED),
    Story("until the next one is placed, as ever", [*WISHES, closed(), placed(attempt=2)], TERMINATED, Void.ATTEMPT_NOT_LATEST),
    Story("what is killed stays so", [*WISHES, closed(disposal=f.Disposal.KILL)], TERMINATED, Void.UNIT_FINAL),
    Story("under rules 2 nobody asked", [*RULES_2, *RUNNING, closed()], TERMINATED, None),
    Story("nor under rules 1", [*RUNNING, closed()], TERMINATED, None),
    Story("a 143 after SIGTERM is void as ever", [*RUNNING_3, closed()], reported(exit=143, terminated=True), Void.ATTEMPT_NOT_LIVE),
    Story("an instance never reports", [*granted(dept="web"), placed("web.1")], reported(unit="web.1"), Void.UNIT_UNKNOWN),
    # departments
    Story("a department that was left out is closed", [adopted("hpc"), adopted("web")], CLOSE, None),
    Story("not one that is there again", [adopted("hpc"), adopted("web"), adopted("hpc", "web")], CLOSE, Void.DEPARTMENT_NAMED),
    Story("one that was left out again is", [adopted("hpc"), adopted(), adopted("hpc"), adopted("web")], CLOSE, None),
    Story("others that are named are no matter", [adopted("web", "bio")], CLOSE, None),
    Story("before there is a configuration none is named", [], CLOSE, None),
    Story("under rules 3 it was closed all the same", [adopted("hpc", rules=3)], CLOSE, None),
    # jobs
    Story("job numbers only grow", [job("2")], job("1"), Void.JOB_KNOWN),
    Story("a job is submitted once", [job("1")], job("1"), Void.JOB_KNOWN),
    Story("an unknown job is not cancelled", [], CANCEL, Void.UNIT_UNKNOWN),
    Story("a final job is not cancelled", [job(), CANCEL], CANCEL, Void.UNIT_FINAL),
    Story("nor held", [job(), CANCEL], HOLD, Void.UNIT_FINAL),
    Story("nor released", [job(), CANCEL], (A, f.JobResumed(job="1", user="a")), Void.UNIT_FINAL),
    # arrays
    *(story for made in OF_ARRAYS for story in (
        Story("elements of an array", [ARRAY], (A, made("1-3")), None),
        Story("those that there are", [ARRAY], (A, made("3,7-9")), None),
        Story("none that there are", [ARRAY], (A, made("0,4-9")), Void.UNIT_UNKNOWN),
        Story("none of a job that is no array", [job()], (A, made("1")), Void.UNIT_UNKNOWN),
        Story("those that are not final", [ARRAY, (A, f.JobCancelled(job="1_1", user="a"))], (A, made("1-2")), None),
        Story("all are final", [ARRAY, (A, f.ArrayCancelled(job="1", dept="hpc", elements="1-2", user="a"))], (A, made("1-2")), Void.UNIT_FINAL),
        Story("a range that ends before it begins", [ARRAY], (A, made("3-1")), Void.WRONG_SHAPE),
        Story("more than are remembered", [ARRAY], (A, made("1-10001")), Void.WRONG_SHAPE),
        Story("as many as are remembered", [ARRAY], (A, made("1-10000")), None),
    )),
    Story("a held array's elements are not placed", [*granted(), ARRAY, (A, OF_ARRAYS[0]("1-2"))], placed("1_2"), Void.UNIT_HELD),
    Story("others are", [*granted(), ARRAY, (A, OF_ARRAYS[0]("1-2"))], placed("1_3"), None),
    Story("those that were let go are", [*granted(), ARRAY, (A, OF_ARRAYS[0]("1-3")), (A, OF_ARRAYS[1]("2"))], placed("1_2"), None),
    # VMs
    Story("one VM per rank, ever", [*RUNNING, ended()], allocated(vm=8), Void.VM_KNOWN),
    Story("in whatever order", [*RULES_2, *granted(), *granted("h2"), *WIDE[:2], allocated(rank=1, vm=8)], allocated(), None),
    Story("another rank has its own", RUNNING, allocated(rank=1, vm=8), None),
    Story("a VM of an unknown unit", [], allocated(), Void.UNIT_UNKNOWN),
    Story("an open VM starts", RUNNING, (E, f.VmStarted(unit="1", attempt=1, rank=0)), None),
    Story("an ended one does not", [*RUNNING, ended()], (E, f.VmStarted(unit="1", attempt=1, rank=0)), Void.VM_NOT_OPEN),
    Story("nor ends again", [*RUNNING, ended()], ended(), Void.VM_NOT_OPEN),
    # VMs that go on
    Story("a saved VM goes on elsewhere", RESUMES, bound(), None),
    Story("a fresh one is also right", RESUMES, bound(vm=8), None),
    Story("not on a host that is not the rank's", RESUMES, bound(host="h1"), Void.WRONG_SHAPE),
    Story("nor as another rank", [*SAVED, *granted("h2"), job("2", nodes=2), placed("2", hosts=("h1", "h2"))],
          bound("2", 1, "h2", rank=1), Void.VM_BUSY),
    Story("nor for another job", [*SAVED, job("2"), placed("2")], bound("2", 1, "h1"), Void.VM_BUSY),
    Story("nor for another job that goes on", [*SAVED_TWO, placed("2", attempt=2)], bound("2", 2, "h1"), Void.VM_BUSY),
    Story("nor as another rank of its own", SAVED_GANG, bound(host="h1", rank=1), Void.VM_BUSY),
    Story("nor as a rank that it does not have", RESUMES, bound(rank=1), Void.WRONG_SHAPE),
    Story("nor as an attempt that is not placed yet", RESUMES, bound(attempt=3), Void.ATTEMPT_NOT_LIVE),
    Story("nor when its attempt is broken", [*RESUMES, (E, f.HostLost(host="h2", reason="r"))], bound(), Void.ATTEMPT_NOT_LIVE),
    Story("nor when its attempt is over", [*RESUMES, closed(attempt=2)], bound(), None),  # forgotten: any VM would do
    Story("nor before it is placed", SAVED, bound(attempt=2, host="h1"), Void.ATTEMPT_NOT_LIVE),
    Story("a VM moves to the next attempt", MOVES, bound(), None),
    Story("not to another job's", [*RULES_2, *TWO, closed("2", disposal=f.Disposal.MIGRATE), placed("2", attempt=2)], bound("2", host="h1"), Void.VM_BUSY),
    Story("not from an earlier life", [*RULES_2, *RUNNING, closed(), placed(attempt=2), bound(host="h1", vm=8), closed(attempt=2, disposal=f.Disposal.MIGRATE),
          placed(attempt=3)], bound(attempt=3, host="h1"), Void.VM_BUSY),
    Story("not if its job was only requeued", [*RULES_2, *RUNNING, closed(), placed(attempt=2)],
          bound(host="h1"), Void.VM_BUSY),
    Story("a running VM is nobody else's", [*RULES_2, *RUNNING, job("2"), placed("2")],
          bound("2", 1, "h1"), Void.VM_BUSY),
    Story("under rules 1 nobody asked", [*RUNNING, job("2"), placed("2")], bound("2", 1, "h1"), None),
    Story("a waiting VM takes the next job", NEXT, bound("2", 1, "h1"), None),
    Story("not another department's", [*PARKED, *REGRANTED, job("2", dept="bio"), ("scheduler.bio", placed("2")[1])], bound("2", 1, "h1"), Void.VM_BUSY),
    Story("not on another host", [*PARKED, *granted("h2"), job("2"), placed("2", hosts=("h2",))],
          bound("2", 1, "h2"), Void.VM_BUSY),
    Story("a guest may give its VM up", RUNNING, FAIL, None),
    Story("not of a VM that was never allocated", [*granted(), job(), placed()], FAIL, Void.VM_NOT_OPEN),
    Story("not of one that has ended", [*RUNNING, ended()], FAIL, Void.VM_NOT_OPEN),
    Story("not twice", [*RUNNING, FAIL], FAIL, Void.ATTEMPT_NOT_LIVE),
    Story("not when its attempt is closed", [*RUNNING, closed()], FAIL, Void.ATTEMPT_NOT_LIVE),
    Story("not when its host is lost", [*RUNNING, LOST], FAIL, Void.ATTEMPT_NOT_LIVE),
    Story("the VM of a completed job may wait", COMPLETED, PARK, None),
    Story("once", PARKED, PARK, Void.VM_NOT_IDLE),
    Story("not while its job runs", [*RULES_2, *RUNNING], PARK, Void.VM_NOT_IDLE),
    Story("not when it has ended", [*COMPLETED, ended()], PARK, Void.VM_NOT_OPEN),
    Story("not on a host that is given back", [*COMPLETED, RELEASE], PARK, Void.HOST_NOT_HELD),
    Story("nor on one that has another department since", [*COMPLETED, *REGRANTED], PARK, Void.HOST_NOT_HELD),
    Story("nor on one that is gone", [*COMPLETED, LOST, (E, f.HostRemoved(host="h1"))], PARK, Void.HOST_NOT_HELD),
    Story("not of an earlier attempt", [*RULES_2, *RUNNING, closed(), placed(attempt=2), bound(host="h1", vm=8), reported(2)], PARK, Void.VM_NOT_IDLE),
    Story("not of a job of several nodes", [*RULES_2, *granted(), *granted("h2"), *WIDE, reported()], PARK, Void.VM_NOT_IDLE),
    # registers
    Story("a department states its own demand", [], (HPC, f.DemandChanged(dept="hpc", hosts=3)), None),
    Story("and nobody else's", [], (WEB, f.DemandChanged(dept="hpc", hosts=3)), Void.NOT_ITS_DEPARTMENT),
]  # fmt: skip


def play(steps: list[Step], without: type | None = None) -> tuple[Custody, list[Void | None]]:
    custody, verdicts = Custody(), []
    with pytest.MonkeyPatch.context() as patch:
        if without is not None:
            patch.setitem(TABLE, without, TABLE[without]._replace(valid=None))
        for position, (writer, fact) in enumerate(steps, 1):
            verdicts.append(fold_fact(custody, fact, position, 0, writer, float(position)))
            if without is None:
                assert check(custody) == []
    return custody, verdicts


@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.name)
def test_verdict(story: Story) -> None:
    custody, verdicts = play([*story.before, story.step])
    assert verdicts[-1] == story.verdict
    if story.verdict is not None:  # a void fact changes nothing but the counters and the position
        before, _ = play(story.before)
        assert custody.state.hosts == before.state.hosts
        assert custody.state.units == before.state.units
        assert custody.state.vms == before.state.vms
        assert custody.state.voids[story.verdict.value] == before.state.voids.get(story.verdict.value, 0) + 1


@pytest.mark.parametrize(
    "kind", [kind for kind, rule in TABLE.items() if rule.valid is not None], ids=lambda c: c.__name__
)
def test_each_precondition_is_needed(kind: type) -> None:
    """Without the precondition of `kind`, a story that ends in its verdict does not."""
    red = [s.name for s in STORIES if s.verdict is not None and type(s.step[1]) is kind and _differs(s, kind)]
    assert red, f"no story fails without the precondition of {kind.__name__}"


def _differs(story: Story, kind: type) -> bool:
    try:
        return play([*story.before, story.step], without=kind)[1][-1] != story.verdict
    except (KeyError, ValueError, AssertionError, TooMany):  # the effect met a state that it cannot be applied to
        return True


@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.name)
def test_snapshot_in_the_middle_changes_nothing(story: Story) -> None:
    """Load(dump) at every position, then the same facts: the same bytes."""
    steps = [*story.before, story.step]
    whole, _ = play(steps)
    for cut in range(len(steps)):
        first, _ = play(steps[:cut])
        second = Custody()
        second.load(first.dump())
        for position, (writer, fact) in enumerate(steps[cut:], cut + 1):
            fold_fact(second, fact, position, 0, writer, float(position))
        assert second.dump() == whole.dump()


def test_every_custody_fact_has_its_row() -> None:
    custody = {cls for cls in f.KIND if issubclass(cls, CustodyFact)}
    assert {cls.__name__ for cls in custody - set(TABLE)} == set()
    assert {cls.__name__ for cls in set(TABLE) - custody} == set()


def test_every_verdict_is_reached_by_a_story() -> None:
    assert {s.verdict for s in STORIES if s.verdict is not None} == set(Void)
