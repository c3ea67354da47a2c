"""What every order must keep (`services.scheduler.core.policies.order`), each rule with the situation in which it is looked at.

Rules of an order
  O1  It answers, whatever the situation, with a plan of the right form: units that wait, each once, as many hosts as they need;
      who waits, for whom room is kept, and the rest, in the right form too.  So does `hosts`, if it has it.
  O2  The same situation gives the same starts: again, after others were asked about, and after a restart.
  O3  It changes nothing that it is shown, nor does its explanation of why others wait.
  O4  Nothing is placed where it does not fit, beside what runs and what it starts itself; never on cordoned hosts.  Only
      best-effort makes way, and only what runs.
  O5  A lane's allowance holds: an array's throttle, and what limits of users leave.
  O6  It starts no more than `most`.
  O7  It comes to rest: when what it starts has been placed, again and again, it starts nothing.
  O8  Time alone starts nothing: what had no fruit now has none later, unless something happens.
  O9  It asks for the forecast only if it says so (`foresees`): the core wakes it for changes of the forecast only then.
  O10 A job alone in the queue, for which there is room, starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from phoenix.policy_check.department import NOW, SERVICES, SHORT_S, Case, Department, HostCase, JobCase, cases, story
from phoenix.policy_check.rules import EXAMPLES, Broken, Rule, attempt, demand
from schemas.config import BatchPolicy
from schemas.dimensions import words
from schemas.size import Size
from services.domain.custody.state import Host
from services.scheduler.core.policies.order import Order, Plan, Situation, Start
from services.scheduler.core.policies.plugged import wrong_kind, wrong_plan, wrong_reason, wrong_reserved

LATER_S: Final = (0.5, 59.0, 3600.0, 1e6)  # after NOW; the last one is behind every time limit
LONE: Final = Case((HostCase(Size(4, 2048), False), HostCase(Size(4, 2048), False)), ())


class Checked(NamedTuple):
    """An order, and the settings of a department that has chosen it."""

    order: Order
    policy: BatchPolicy

    def at(self, case: Case) -> Department:
        return Department(case, self.policy)


def _form(checked: Checked, case: Case) -> None:
    department = checked.at(case)
    situation = department.situation()
    order = checked.order
    plan = order.plan(situation)
    wrong = wrong_plan(situation, plan, makes_way=order.makes_way)
    demand(not wrong, wrong)
    _form_of_waits(situation, plan)
    if plan.rest is not None:
        rest = plan.rest(situation.now)
        wrong = wrong_kind(rest)
        demand(not wrong, f"rest: {wrong}")
        _form_of_waits(situation, rest)
    if order.hosts is not None:
        asked = order.hosts(department.situation(), list(department.core.view.capacities.counts))
        demand(isinstance(asked, int) and asked >= 0, f"hosts: it wants {asked!r} hosts")


def _form_of_waits(situation: Situation, plan: Plan) -> None:
    queue, reserved = situation.queue, list(plan.reservations)
    wrong = next((wrong for each in reserved if (wrong := wrong_reserved(each))), "")
    named = [each.unit for each in reserved]
    waits = {**queue.where, **queue.bookings}
    demand(
        not wrong and len(set(named)) == len(named) and set(named) <= set(waits), f"reservations: of {named}. {wrong}"
    )
    demand(set(plan.waits) <= set(queue.lanes), "it says why lanes wait that are not there")
    for unit, (lane, _) in queue.where.items():
        reason = plan.waits[lane.key](unit, situation.now) if lane.key in plan.waits else None
        wrong = "" if reason is None else wrong_reason(reason)
        demand(not wrong, f"it says why {unit!r} waits {wrong}")


def _same(checked: Checked, case: Case) -> None:
    department = checked.at(case)

    def plan(situation: Situation) -> list[Start]:
        return checked.order.plan(situation).starts

    first = plan(department.situation())
    demand(plan(department.situation()) == first, "asked twice, it gives two answers")
    plan(checked.at(case._replace(hosts=case.hosts[::-1], jobs=case.jobs[::-1])).situation())
    demand(plan(department.situation()) == first, "asked about another department in between, it gives another answer")
    demand(
        plan(department.again().situation()) == first, "after a restart from the same state, it gives another answer"
    )


def _changes_nothing(checked: Checked, case: Case) -> None:
    department = checked.at(case)
    situation, before = department.situation(), department.picture()
    plan = checked.order.plan(situation)
    for each in [plan] if plan.rest is None else [plan, plan.rest(situation.now)]:
        _form_of_waits(situation, each)
    demand(department.picture() == before, "queue, room, forecast or state are not what they were before it was asked")


class _Ground:
    """What is free on each host, while starts are placed one after the other."""

    def __init__(self, department: Department) -> None:
        self.department = department
        self.units = {name: dict(host.units) for name, host in department.custody.state.hosts.items()}
        self.free = {name: host.free for name, host in department.custody.state.hosts.items()}
        self.whole = {name: host.exclusive for name, host in department.custody.state.hosts.items()}

    def leave(self, unit: str) -> None:
        known = self.department.custody.state.units.get(unit)
        demand(known is not None and known.live, f"{unit!r} shall make way, and does not run")
        assert known is not None
        demand(self.department.core.view.jobs.job(unit).best_effort, f"{unit!r} shall make way, and is not best-effort")
        for host in known.hosts:
            demand(unit in self.units[host], f"{unit!r} shall make way twice")
            del self.units[host][unit]
            self.free[host] = self.free[host].plus(known.size)
            self.whole[host] = False

    def enter(self, start: Start) -> None:
        for name in start.hosts:
            host: Host | None = self.department.custody.state.hosts.get(name)
            demand(host is not None, f"{start.unit!r} on {name!r}, which is no host")
            assert host is not None
            demand(host.cordoned is None, f"{start.unit!r} on {name}, which is cordoned")
            shape = start.shape
            taken = self.whole[name] or (shape.exclusive and bool(self.units[name]))
            fits = not taken and shape.size.fits_in(self.free[name])
            beside = f"{words(self.free[name])} are free beside {sorted(self.units[name])}"
            demand(fits, f"{start.unit!r} does not fit on {name}: {beside}")
            self.units[name][start.unit] = None
            self.free[name] = self.free[name].minus(shape.size)
            self.whole[name] = shape.exclusive


def _fits(checked: Checked, case: Case) -> None:
    department = checked.at(case)
    ground = _Ground(department)
    for start in checked.order.plan(department.situation()).starts:
        for unit in start.victims:
            ground.leave(unit)
        ground.enter(start)


def _throttle(checked: Checked, case: Case) -> None:
    department = checked.at(case)
    queue = department.situation().queue
    allowed = {key: queue.allowance(lane) for key, lane in queue.lanes.items()}
    for start in checked.order.plan(department.situation()).starts:
        if start.unit in queue.where:
            lane = queue.where[start.unit][0].key
            demand(
                allowed[lane] > 0,
                f"{start.unit!r} is started, though its array's throttle or its user's limit allows no more now",
            )
            allowed[lane] -= 1


def _most(checked: Checked, case: Case) -> None:
    department = checked.at(case)
    for most in (0, 1, 2):
        count = len(checked.order.plan(department.situation(most=most)).starts)
        demand(count <= most, f"{most} starts are allowed, and it starts {count}")


def _settled(checked: Checked, case: Case) -> Department:
    """The department once everything that the order starts has been placed."""
    department = checked.at(case)
    passes = 2 * sum(max(1, job.elements) for job in case.jobs) + 1
    for _ in range(passes):
        starts = checked.order.plan(department.situation()).starts
        if not starts:
            return department
        for start in department.cut(starts):
            try:
                department.start(start)
            except (AssertionError, KeyError) as error:
                raise Broken(f"{start.unit!r} cannot be placed: {error}") from error
    raise Broken(f"after {passes} passes, each of which was placed, it still starts something")


def _rests(checked: Checked, case: Case) -> None:
    _settled(checked, case)


def _time(checked: Checked, case: Case) -> None:
    department = _settled(checked, case)
    for later_s in LATER_S:
        starts = checked.order.plan(department.situation()._replace(now=NOW + later_s)).starts
        demand(
            not starts, f"nothing has happened, but {later_s:g} s later it starts {[start.unit for start in starts]}"
        )


def _forecast(checked: Checked, case: Case) -> None:
    if checked.order.foresees:
        return

    def none() -> NoReturn:
        raise Broken("it asks for the forecast, and says foresees=False")

    checked.order.plan(checked.at(case).situation()._replace(forecast=none))


def _alone(checked: Checked, case: Case) -> None:
    """The first job of the case, cut to what fits on two empty hosts; short, so that no service's share keeps it."""
    job = case.jobs[0] if case.jobs else JobCase()
    lone = job._replace(nodes=min(2, job.nodes), walltime_s=60.0, elements=0, throttle=0, running=0)
    department = checked.at(LONE._replace(jobs=(lone,)))
    starts = [start.unit for start in checked.order.plan(department.situation()).starts]
    text = f"{lone.nodes} x {words(lone.size)}{', whole hosts' if lone.exclusive else ''}"
    demand(starts == ["1"], f"one job ({text}) on two empty hosts of 4 cores and 2048 MiB is not started: {starts}")


ORDER_RULES: Final[tuple[Rule[Checked, Case], ...]] = (
    Rule("O1", "it answers whatever the situation, in the right form", _form),
    Rule("O2", "the same situation gives the same starts", _same),
    Rule("O3", "it changes nothing that it is shown", _changes_nothing),
    Rule("O4", "nothing is placed where it does not fit", _fits),
    Rule("O5", "throttles and limits hold", _throttle),
    Rule("O6", "it starts no more than it may", _most),
    Rule("O7", "it comes to rest", _rests),
    Rule("O8", "time alone starts nothing", _time),
    Rule("O9", "it asks for the forecast only if it says so", _forecast),
    Rule("O10", "a job alone, for which there is room, starts", _alone),
)


def of(name: str, options: dict[str, object] | None = None) -> BatchPolicy:
    """Settings of a department that has chosen this order."""
    shared = SERVICES if name == "svmsched" else {}
    return BatchPolicy(order=name, services=shared, short_s=SHORT_S, options=options or {})  # type: ignore[arg-type]


def check_order(
    order: Order, policy: BatchPolicy | None = None, *, examples: int = EXAMPLES, only: Callable[[str], bool] = bool
) -> None:
    """Raises `Violation` for the first rule that the order does not keep.  `policy`: the department's settings, with the
    options that the order reads; `only`: which rules, by name."""
    checked = Checked(order, policy or BatchPolicy())
    for rule in ORDER_RULES:
        if only(rule.name):
            attempt(rule, checked, cases(checked.policy), story, examples)


__all__ = ["ORDER_RULES", "Checked", "Situation", "check_order", "of"]
