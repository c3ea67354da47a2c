"""`phoenix lending` and the hosts' owners, as the monitor pictures them and a person reads them."""

from __future__ import annotations

import re

from phoenix.cli import lending as command
from phoenix.cli.hosts import render as hosts_table
from schemas import facts as f
from schemas import reasons as because
from schemas.config import Lending
from schemas.units import exact
from services.domain.sharing.credit import Credits
from services.domain.text import sentence
from services.monitor.views import lending
from services.monitor.views.views import host_view
from tests.unit.test_provisioner_core import HPC, Bench
from tests.unit.test_provisioner_lending import BIO, DAY, EVENING, MORNING, bench

CONTRACT = Lending(lender="bio", borrower="hpc", hosts=3, notice_s=600.0, deadline_s=3600.0, credit=1.0)


def lent(*contracts: Lending) -> Bench:
    """hpc holds all four hosts; two of them are bio's."""
    made = bench(HPC, BIO, contracts=contracts)
    made.demand("hpc", 4)
    made.settle()
    return made


def lines(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


def test_the_picture_says_what_is_lent_and_by_which_contract() -> None:
    made = lent(CONTRACT)
    found = lending.picture(made.custody, made.core._state.credits, 100.0)
    rows = {d["department"]: (d["own"], d["held"], d["lent"], d["borrowed"]) for d in found["departments"]}
    assert rows == {"bio": (2, 0, 2, 0), "hpc": (2, 4, 0, 2)}
    assert found["loans"] == [{"lender": "bio", "borrower": "hpc", "hosts": 2, "over": 0}]
    assert [(c["lent"], c["over"], c["holds"]) for c in found["contracts"]] == [(2, 0, True)]
    assert found["changes_at"] is None


def test_the_tables_are_read_by_a_person() -> None:
    made = lent(CONTRACT)
    text = command.render(lending.picture(made.custody, made.core._state.credits, 100.0))
    assert ["bio", "2", "0", "2", "0", "0", "-", "-", "-"] in lines(text)
    assert ["bio", "hpc", "2", "3", "10m00s", "0.3s", "1h00m", "1", "always"] in lines(text)
    assert "hpc has 2 hosts of bio's." in text


def test_without_contracts_it_says_what_that_means() -> None:
    made = bench(HPC, DAY)
    made.settle()
    found = lending.picture(made.custody, Credits(), MORNING)
    text = command.render(found)
    assert "no contracts: idle hosts are lent to any department that can use them" in text
    assert "daily 08:00-18:00 guarantee 3 maximum 3 (until Thu 18:00)" in text
    assert found["changes_at"] == exact(EVENING)
    assert "Hours change at Thu 18:00 UTC." in text


def test_a_contract_of_other_hours_is_marked() -> None:
    made = lent(Lending(lender="bio", borrower="hpc", windows=("daily 20:00-06:00",), windows_zone="UTC+01:00"))
    text = command.render(lending.picture(made.custody, Credits(), 12 * 3600.0))
    assert "2 (2 over)" in text
    assert "daily 20:00-06:00 UTC+01:00 (not now)" in text


def test_what_was_earned_is_shown() -> None:
    made = lent(CONTRACT)
    made.demand("bio", 2)
    run_hosts = sorted(made.custody.index.held["hpc"])
    made.settle()
    made.write("scheduler.hpc", f.HostReleased(host=run_hosts[0]))
    found = lending.picture(made.custody, made.core._state.credits, 100.0)
    assert found["departments"][0]["earned_host_s"] == 600.0
    assert "+4.2 %" in command.render(found)


def test_hosts_say_whose_they_are() -> None:
    made = lent(CONTRACT)
    where = lending.where(made.custody, 100.0)
    rows = [host_view(host, where[name]) for name, host in sorted(made.custody.state.hosts.items())]
    assert [(r["owner"], r["lent"], r["due_at"] is not None) for r in rows] == [
        ("hpc", False, False),
        ("hpc", False, False),
        ("bio", True, True),
        ("bio", True, True),
    ]
    assert "bio (lent due 1970-01-01T01:01:40" in hosts_table(rows)


def test_reasons_name_the_window_and_the_contract() -> None:
    window = because.Window(department="bio", window="daily 08:00-18:00 guarantee 3")
    contract = because.Lending(lender="bio", borrower="hpc", notice_s=600.0)
    assert sentence(window) == ('at these hours bio has "daily 08:00-18:00 guarantee 3"')
    assert sentence(contract) == ("bio wants hosts back that it lent hpc, on 600 s notice")
