"""What a VM of the embedded hypervisor uses is told in cores of its host, as OpenNebula's monitoring does."""

from __future__ import annotations

import pytest

from phoenix.local.process.machine import percent_of_host_core


@pytest.mark.parametrize(
    ("busy", "core_share", "cores", "percent"),
    [
        (0.2, 0.05, 4, 400),  # all that it may have: four twentieths of a real core
        (0.05, 0.05, 4, 100),
        (0.5, 1.0, 2, 50),
        (1.0, 0.05, 4, 400),  # nothing holds it to its own: no host has twenty cores of its four busy
        (-0.01, 0.05, 4, 0),
    ],
)
def test_a_real_core_is_as_many_of_the_hosts_as_stand_on_it(
    busy: float, core_share: float, cores: float, percent: float
) -> None:
    assert percent_of_host_core(busy, core_share, cores) == pytest.approx(percent)
