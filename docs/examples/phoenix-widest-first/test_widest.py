"""The two policies keep the rules, and do what they say."""

from phoenix_widest_first import ORDER, Settings, width
from phoenix_widest_last import choose

from phoenix.plugin.policies import BatchPolicy, Shape, Size
from phoenix.policy_check import check_order, check_victims
from phoenix.policy_check.department import Case, Department, HostCase, JobCase

HOSTS = (HostCase(Size(4, 8192), cordoned=False), HostCase(Size(4, 8192), cordoned=False))


def started(by: str, *jobs: JobCase) -> list[str]:
    """The units that start on two hosts of four cores."""
    policy = BatchPolicy(order="widest-first", options={"by": by})
    return [start.unit for start in ORDER.plan(Department(Case(HOSTS, jobs), policy).situation()).starts]


def test_they_keep_the_rules() -> None:
    check_order(ORDER, examples=10)
    check_victims(choose, examples=10)


def test_the_widest_starts_first() -> None:
    narrow, whole, wide = (JobCase(nodes=nodes, size=Size(cores, 256)) for nodes, cores in ((1, 1), (1, 4), (2, 3)))
    assert started("cores", narrow, whole, wide) == ["3", "1"]
    assert started("cores", JobCase(size=Size(4, 256)), JobCase(nodes=2, size=Size(1, 256))) == ["1"]
    assert started("hosts", JobCase(size=Size(4, 256)), JobCase(nodes=2, size=Size(1, 256))) == ["2"]


def test_priority_goes_before_width() -> None:
    assert started("cores", JobCase(nodes=2, size=Size(4, 256)), JobCase(priority=1)) == ["2"]


def test_what_is_wide() -> None:
    assert width(Settings(), Shape(2, Size(3, 256), False)) == 6
    assert width(Settings(by="hosts"), Shape(2, Size(3, 256), False)) == 2
