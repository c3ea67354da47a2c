"""A time on the wire is the one that Python's calendar has, whatever the second."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from schemas.times import not_after, not_before
from schemas.units import exact, seconds


@given(st.floats(-1e9, 4e9))  # later ones, as a float of seconds, are not exact to the microsecond
@example(-0.0)
@example(-0.0004)
@example(0.9996)
@example(1_795_699_249.5955)
def test_a_time_is_written_to_the_millisecond_and_read_back(instant: float) -> None:
    text = exact(instant)
    moment = datetime.fromtimestamp(round(instant, 3), UTC)
    assert text == f"{moment.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"
    back = seconds(text)
    assert back is not None
    assert abs(back - instant) <= 0.000501
    least, most = seconds(not_before(instant)), seconds(not_after(instant))
    assert least is not None
    assert most is not None
    assert most <= instant <= least <= most + 0.001001
