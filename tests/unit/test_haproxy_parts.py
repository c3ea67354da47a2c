"""The pure parts of the agent beside HAProxy: what its answers say, which instances there are, what is reported, rates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phoenix.balance.feed import Listed
from phoenix.balance.reporter import Report
from phoenix.haproxy.flow import Flow
from phoenix.haproxy.reconciler import plan
from phoenix.haproxy.slots import AnswerError, Counters, Reading, Slot, address_of, paths_of, reading
from phoenix.haproxy.table import Table, Wanted
from phoenix.haproxy.watch import Watch

# As HAProxy 2.6.12 answered, but for the columns that nobody reads.
INFO = "Name: HAProxy\nVersion: 2.6.12-1+deb12u3\nPid: 23816\nUptime_sec: 41\n\n"
STATE = """1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_check_state srv_fqdn srv_port
3 web 1 phoenix1 127.0.0.1 2 4 7 6 localhost 19001
3 web 2 phoenix2 127.0.0.2 0 4 1 6 localhost 19001
3 web 3 phoenix10 127.0.0.1 2 12 7 6 localhost 19002
3 web 4 phoenix3 127.0.0.1 0 5 1 15 localhost 1
3 web 5 spare 10.0.0.9 2 0 1 6 - 80
3 web 6 phoenix-own 10.0.0.9 2 0 1 6 - 80
4 other 1 phoenix1 127.0.0.1 2 0 1 10 - 80

"""
STAT = """\
# pxname,svname,qcur,scur,slim,stot,\
hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other,eresp,srv_abrt,\
wretr,wredis,lastchg,check_status,check_code,last_chk,qtime,ctime,rtime
web,phoenix1,1,3,64,84,1,70,2,5,4,3,2,1,0,0,11,L7OK,200,,0,0,0
web,phoenix2,0,0,4,0,0,0,0,0,0,0,0,0,0,0,8,* L4CON,,Connection refused,0,0,0
web,phoenix10,0,2,,0,0,0,0,0,0,0,0,0,0,0,15,L7OK,200,,0,0,0
web,phoenix3,0,0,64,0,0,0,0,0,0,0,0,0,0,0,1,,,,0,0,0
web,phoenix-own,0,0,64,0,0,0,0,0,0,0,0,0,0,0,1,L7OK,200,,0,0,0
web,spare,0,0,64,0,0,0,0,0,0,0,0,0,0,0,1,L7OK,200,,0,0,0
web,BACKEND,2,5,2000,140,0,0,0,0,3,0,0,1,4,61,1,,,,4,1,12
other,phoenix1,0,0,64,9,0,0,0,0,0,0,0,0,0,0,1,L7OK,200,,0,0,0
"""


MAP = "0x7f16200465b0 phoenix1 /up?a=1&b=2\n0x561dc5958b00 phoenix10 /healthz\n\n"


def read(state: str = STATE, stat: str = STAT, info: str = INFO, paths: str = MAP) -> Reading:
    return reading(info, state, stat, "web", "phoenix", paths_of(paths))


def test_haproxys_answers_are_slots_in_the_order_of_their_numbers() -> None:
    found = read()
    assert [slot.name for slot in found.slots] == ["phoenix1", "phoenix2", "phoenix3", "phoenix10"]
    assert (found.pid, found.uptime_s) == (23816, 41.0)
    first, second, third, tenth = found.slots
    assert (first.ordered, first.is_up, first.weight, first.sessions, first.queued) == ("ready", True, 7, 3, 1)
    assert (second.address, second.is_up, second.for_s) == (("127.0.0.2", 19001), False, 8.0)
    assert second.why == "L4CON: Connection refused"
    assert (first.answered, first.errors) == (85 + 2 - 1, 4 + 2)  # one of the two that were broken off had been begun
    assert (third.ordered, third.is_checked, third.is_checking) == ("maint", True, True)
    assert (tenth.ordered, tenth.serves) == ("drain", False)
    assert [(slot.path, slot.limit) for slot in found.slots] == [
        ("/up?a=1&b=2", 64),
        ("", 4),
        ("", 64),
        ("/healthz", 0),
    ]


def test_a_configuration_without_the_map_is_told_from_one_whose_map_is_empty() -> None:
    assert not read(paths="Unknown map identifier. Please use #<id> or <file>.\n\n").has_map
    assert read(paths="\n").has_map


def test_the_backends_counters() -> None:
    expected = Counters(requests=140, errors=4, queued=2, response_ms=17.0, retries=4, redispatches=61)
    assert read().counters == expected


@pytest.mark.parametrize(
    ("answers", "what"),
    [
        ({"state": "Can't find backend.\n\n"}, "no state of backend web"),
        ({"state": ""}, "no state of backend web"),
        ({"stat": "Permission denied\n"}, "no statistics of backend web"),
        ({"stat": STAT.replace("web,phoenix2", "web,gone")}, "no phoenix2"),
        ({"stat": STAT.replace("scur", "sessions")}, "no scur"),
        ({"stat": STAT.replace("eresp", "errors")}, "no eresp"),
        ({"state": STATE.replace("srv_admin_state", "admin")}, "no srv_admin_state"),
        ({"state": STATE.replace("127.0.0.2", "?")}, "'?'"),
        ({"info": "Name: HAProxy\n"}, "no Pid"),
        ({"paths": "Permission denied\n"}, "no map of health paths: 'Permission denied'"),
    ],
)
def test_what_cannot_be_read_is_never_an_empty_backend(answers: dict[str, str], what: str) -> None:
    with pytest.raises(AnswerError, match=what.replace("?", r"\?")):
        read(**answers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[2001:DB8::0:1]:8080", ("2001:db8::1", 8080)),
        ("web-7:80", None),
        ("127.0.0.1", None),
        ("127.0.0.1:0", None),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:80; show info", None),
        ("[fe80::1%x; disable frontend web]:80", None),
        ("[fe80::1%eth0]:80", None),
        ("127.0.0.1\n:80", None),
        ("", None),
    ],
)
def test_an_address_is_an_ip_and_a_port_and_nothing_else(text: str, expected: object) -> None:
    assert address_of(text) == expected


# ------------------------------------------------------------------------------------------------------------------ table


def listed(unit: str, port: int | None, state: str = "running", **more: object) -> Listed:
    address = f"127.0.0.1:{port}" if port else None
    values: dict[str, object] = {"health_path": "/healthz", **more}
    return Listed(unit=unit, attempt=1, state=state, address=address, **values)  # type: ignore[arg-type]


def units(table: Table) -> list[str]:
    return [one.unit for one in table.all()]


def test_an_instance_is_wanted_from_its_beginning_to_its_end() -> None:
    table = Table()
    table.began("web.1", 1, ["127.0.0.1:8001"], 1.0)
    table.began("web.2", 1, [None], 1.0)
    table.draining("web.1", 1, 9.0, 2.0)
    assert [(one.unit, one.draining) for one in table.all()] == [("web.1", True)]
    table.closed("web.1", 1, 3.0)
    table.began("web.1", 1, ["127.0.0.1:8001"], 4.0)  # an event that comes twice
    assert table.all() == []


def test_who_begins_at_an_address_displaces_who_was_there() -> None:
    table = Table()
    table.began("web.1", 1, ["127.0.0.1:8001"], 1.0)
    table.began("web.2", 1, ["127.0.0.1:8001"], 2.0)
    assert units(table) == ["web.2"]
    table.closed("web.1", 1, 3.0)
    assert units(table) == ["web.2"]


def test_an_audit_repairs_and_does_not_undo_what_came_after_it() -> None:
    table = Table()
    assert not table.is_known
    table.began("web.1", 1, ["127.0.0.1:8001"], 1.0)
    table.began("web.3", 1, ["127.0.0.1:8003"], 3.0)
    table.audited([listed("web.2", 8002, cores=4.0), listed("web.4", None, "starting")], asked_at=2.0, now=4.0)
    assert table.is_known
    assert [(one.unit, one.cores) for one in table.all()] == [("web.3", 1.0), ("web.2", 4.0)]
    table.audited([listed("web.2", 8002, "draining"), listed("web.3", None, "draining")], asked_at=5.0, now=6.0)
    assert [(one.unit, one.draining) for one in table.all()] == [("web.2", True)]
    table.audited([listed("web.2", 8002)], asked_at=7.0, now=8.0)  # draining is for ever
    assert [(one.unit, one.draining) for one in table.all()] == [("web.2", True)]


def test_an_address_that_no_server_can_have_is_remembered_until_the_end() -> None:
    table = Table()
    table.began("web.1", 1, ["web-1.example:80"], 1.0)
    assert (units(table), list(table.unusable.values())) == ([], ["web-1.example:80"])
    table.closed("web.1", 1, 2.0)
    assert table.unusable == {}


def told(table: Table) -> list[tuple[str, str, int]]:
    return [(one.unit, one.health_path, one.connections) for one in table.all()]


def test_what_an_instance_is_asked_for_is_known_from_an_audit_while_it_boots_or_from_one_afterwards() -> None:
    table = Table()
    boots = listed("web.1", None, "starting", health_path="/up", connections=4)
    table.audited([boots], asked_at=1.0, now=1.0)
    table.began("web.1", 1, ["127.0.0.1:8001"], 2.0)
    table.began("web.2", 1, ["127.0.0.1:8002"], 2.0)
    table.began("web.1", 2, ["127.0.0.1:8003"], 2.0)  # another attempt: nobody has heard of it
    assert told(table) == [("web.1", "/up", 4), ("web.2", "", 0), ("web.1", "", 0)]
    table.closed("web.1", 2, 3.0)
    table.audited([listed("web.1", 8001, health_path="/up"), listed("web.2", 8002, connections=9)], 3.0, 4.0)
    assert told(table) == [("web.1", "/up", 0), ("web.2", "/healthz", 9)]


@pytest.mark.parametrize(
    "path", ["/up;shutdown sessions server web/phoenix1", "/up\nhelp", "", "up", "/a b", "/" * 1025]
)
def test_a_health_path_that_would_be_another_command_goes_into_none(path: str) -> None:
    table = Table()
    table.began("web.1", 1, ["127.0.0.1:8001"], 1.0)
    for _ in range(2):
        table.audited([listed("web.1", 8001, health_path=path)], asked_at=2.0, now=3.0)
        assert (told(table), list(table.unusable.values())) == ([("web.1", "", 0)], [path])
    table.closed("web.1", 1, 4.0)
    assert table.unusable == {}


# ------------------------------------------------------------------------------------------------------------------ watch


def instance(number: int = 1, *, draining: bool = False) -> Wanted:
    return Wanted(f"web.{number}", 1, 0, ("127.0.0.1", 8000 + number), draining=draining, health_path="/up")


def slot(number: int = 1, **more: object) -> Slot:
    values: dict[str, object] = {"ordered": "ready", "is_up": True, "is_checked": True, "weight": 1, **more}
    return Slot(f"phoenix{number}", ("127.0.0.1", 8000 + number), **values)  # type: ignore[arg-type]


def seen(*slots: Slot, uptime_s: float = 100.0, pid: int = 1, **counters: float) -> Reading:
    values: dict[str, object] = {"requests": 0, "errors": 0, "queued": 0, "response_ms": None, **counters}
    told = Counters(retries=0, redispatches=0, **values)  # type: ignore[arg-type]
    return Reading(pid, uptime_s, slots, told, has_map=True)


def said(watch: Watch, wanted: list[Wanted], found: Reading) -> list[Report]:
    return watch.look(wanted, plan(wanted, found.slots), found)


def test_drained_is_two_quiet_looks_in_a_row() -> None:
    watch, one = Watch(old_process_s=30.0), [instance(draining=True)]
    busy, quiet = seen(slot(ordered="drain", sessions=1)), seen(slot(ordered="drain"))
    waits = seen(slot(ordered="drain", queued=1))
    answers = [said(watch, one, look) for look in (busy, quiet, waits, quiet, quiet)]
    assert answers == [[], [], [], [], [Report("web.1", 1, "drained")]]


def test_one_that_has_no_slot_is_drained_and_one_whose_slot_is_not_yet_in_drain_is_not() -> None:
    watch, one = Watch(old_process_s=30.0), [instance(draining=True)]
    assert [said(watch, one, seen(slot())) for _ in range(3)] == [[], [], []]
    assert [said(watch, one, seen()) for _ in range(2)] == [[], [Report("web.1", 1, "drained")]]


@pytest.mark.parametrize("slots", [(), (slot(ordered="drain"),)])
def test_one_that_does_not_drain_is_never_drained_whatever_its_slot_shows(slots: tuple[Slot, ...]) -> None:
    watch = Watch(old_process_s=30.0)
    assert [said(watch, [instance()], seen(*slots)) for _ in range(3)] == [[], [], []]


def test_nothing_is_drained_while_an_old_process_may_go_on_or_others_stand_beside() -> None:
    one, quiet = [instance(draining=True)], slot(ordered="drain")
    watch = Watch(old_process_s=30.0)
    young = [said(watch, one, seen(quiet, uptime_s=uptime_s)) for uptime_s in (1.0, 29.0, 30.0)]
    assert young == [[], [], [Report("web.1", 1, "drained")]]
    beside = Watch(old_process_s=0.0, tells_drained=False)
    assert [said(beside, one, seen(quiet)) for _ in range(3)] == [[], [], []]


def test_one_that_haproxy_has_taken_down_is_unready_at_once_and_it_says_why() -> None:
    watch, one = Watch(old_process_s=30.0), [instance()]
    assert said(watch, one, seen(slot())) == [Report("web.1", 1, "ready")]
    down = slot(is_up=False, for_s=0.0, why="L7STS 500: Internal Server Error")
    why = "health check: HTTP 500 (L7STS 500: Internal Server Error)"
    assert said(watch, one, seen(down)) == [Report("web.1", 1, "unready", why)]
    assert said(watch, one, seen(slot())) == [Report("web.1", 1, "ready")]
    assert said(watch, [instance(draining=True)], seen(replace(down, for_s=99.0))) == []
    assert said(watch, one, seen(replace(down, ordered="drain", for_s=99.0))) == []


def test_one_that_is_checked_where_the_configuration_says_and_not_its_release_is_told_with_both() -> None:
    watch, one = Watch(old_process_s=30.0), [instance()]
    down = replace(seen(slot(is_up=False, for_s=3.0, why="L7STS 404: Not Found")), has_map=False)
    why = "haproxy.cfg has no map of health paths (docs/howto/haproxy.md), the release's is /up; health check: HTTP 404"
    assert said(watch, one, down) == [Report("web.1", 1, "unready", f"{why} (L7STS 404: Not Found)")]


def test_one_that_was_not_seen_up_has_time_for_its_first_check() -> None:
    watch, one = Watch(old_process_s=30.0), [instance()]
    down = slot(is_up=False, for_s=1.0, why="L4CON: Connection refused")
    assert [said(watch, one, seen(down)) for _ in range(2)] == [[], []]
    why = "health check: no connection (L4CON: Connection refused)"
    assert said(watch, one, seen(replace(down, for_s=2.0))) == [Report("web.1", 1, "unready", why)]


@pytest.mark.parametrize("why", ["INI", "L7OK 200", "L4OK"])
def test_one_that_a_new_process_of_haproxy_has_not_checked_since_it_is_ready_has_time_too(why: str) -> None:
    watch, one = Watch(old_process_s=30.0), [instance()]
    assert said(watch, one, seen(slot())) == [Report("web.1", 1, "ready")]
    new = slot(is_up=False, for_s=1.0, why=why)
    assert said(watch, one, seen(new, pid=2, uptime_s=1.0)) == []
    (report,) = said(watch, one, seen(replace(new, for_s=2.0), pid=2, uptime_s=2.0))
    assert report.state == "unready"


def test_ready_is_said_at_first_and_then_of_those_that_were_not() -> None:
    watch = Watch(old_process_s=30.0)
    assert said(watch, [], seen()) == []
    assert said(watch, [instance(1)], seen(slot(1))) == [Report("web.1", 1, "ready")]
    assert said(watch, [], seen()) == []
    assert said(watch, [instance(2)], seen(slot(2))) == []
    (report,) = said(watch, [instance(2)], seen(slot(2, is_up=False, for_s=11.0)))
    assert report.state == "unready"
    assert said(watch, [instance(2), instance(3)], seen(slot(2), slot(3))) == [Report("web.2", 1, "ready")]


# ------------------------------------------------------------------------------------------------------------------- flow


def test_rates_are_differences_over_the_time_between_two_looks() -> None:
    flow = Flow("lb@here")
    assert flow.requests(seen(requests=100, errors=2), 10.0, 1000.0) is None
    found = flow.requests(seen(slot(queued=3), requests=160, errors=3, queued=2, response_ms=17.0), 12.0, 1002.0)
    assert found is not None
    assert (found.rate, found.errors, found.queue, found.response_ms) == (30.0, 0.5, 5, 17.0)
    assert (found.interval_s, found.at, found.source) == (2.0, 1002.0, "lb@here")
    idle = flow.requests(seen(requests=160, errors=3, response_ms=17.0), 13.0, 1003.0)
    assert idle is not None
    assert (idle.rate, idle.response_ms) == (0.0, None)


def test_refused_is_what_haproxy_turned_away_by_itself() -> None:
    flow = Flow("")
    flow.requests(seen(slot(1, errors=5), requests=100, errors=6), 10.0, 1000.0)
    found = flow.requests(seen(slot(1, errors=7), slot(2, errors=1), requests=200, errors=49), 12.0, 1002.0)
    assert found is not None
    assert (found.errors, found.refused) == (21.5, 20.0)  # three of 43 were errors of instances
    tried_again = flow.requests(seen(slot(1, errors=9), slot(2, errors=1), requests=300, errors=50), 13.0, 1003.0)
    assert tried_again is not None
    assert tried_again.refused == 0.0


def test_two_looks_at_one_moment_make_no_rate() -> None:
    flow = Flow("")
    flow.requests(seen(requests=100), 10.0, 1000.0)
    assert flow.requests(seen(requests=160), 10.0, 1000.0) is None


@pytest.mark.parametrize("instance_errors", [5, 2])  # none is new; a slot that counts anew takes nothing back
def test_without_new_errors_of_instances_all_are_haproxys(instance_errors: int) -> None:
    flow = Flow("")
    flow.requests(seen(slot(errors=5), requests=100, errors=6), 10.0, 1000.0)
    found = flow.requests(seen(slot(errors=instance_errors), requests=100, errors=7), 11.0, 1001.0)
    assert found is not None
    assert (found.errors, found.refused) == (1.0, 1.0)


@pytest.mark.parametrize(
    "after",
    [
        {"pid": 2, "requests": 500.0, "errors": 9.0},
        {"requests": 10.0, "errors": 2.0},
        {"requests": 200.0, "errors": 0.0},
    ],
)
def test_counters_that_begin_anew_make_no_rate_and_the_next_look_does(after: dict[str, float]) -> None:
    flow = Flow("")
    flow.requests(seen(requests=100, errors=2), 10.0, 1000.0)
    pid = int(after.pop("pid", 1))
    new = seen(pid=pid, **after)
    assert flow.requests(new, 11.0, 1001.0) is None
    later = flow.requests(
        replace(new, counters=replace(new.counters, requests=new.counters.requests + 7)), 12.0, 1002.0
    )
    assert later is not None
    assert later.rate == 7.0


def test_sessions_are_of_the_instances_with_and_without_a_slot() -> None:
    wanted = [instance(1), instance(2), instance(3, draining=True)]
    found = seen(slot(1, sessions=4), slot(3, ordered="drain", sessions=1))
    told = Flow("").sessions(wanted, plan(wanted, found.slots), 1.0)
    assert told.sessions == {"web.1": 4, "web.2": 0, "web.3": 1}
