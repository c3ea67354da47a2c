"""`phoenix tune --journal`: the past of a running cloud, under other settings.

Theory of operation
  The journal is read once for each period (`phoenix.whatif.past`).  A trial plays the period again under the configuration in
  force with the point's values set, as `phoenix whatif --config` does; what limits may stand against, and what is called "as it
  is", is the replay under what was in force.  So what the model lacks, it lacks on both sides.

Rules
  1. A value is set in the configuration file as a [[vary]] sets one, and judged by what judges that file.  `cluster.hosts`
     plays the period on that many hosts.
  2. Held out are other periods of the past, `14d..7d`.
  3. The best is proposed as a file: the configuration in force, its comments kept, with the values set.  Nothing is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from phoenix.cli import units
from phoenix.cli.errors import FAILED, CliError, usage
from phoenix.cli.period import instant
from phoenix.search.space import Point
from phoenix.search.trials import digest
from phoenix.simulate import goal as goals
from phoenix.simulate import vary
from phoenix.simulate.metrics import measure
from phoenix.simulate.sizes import HOSTS_MAX
from phoenix.tune.bench import Judged, kept_of
from phoenix.tune.goals import HOSTS
from phoenix.whatif.lives import Unknown
from phoenix.whatif.past import Past
from schemas.config import CloudConfig
from services.runtime.config import file as configuration
from services.runtime.config.form import Problem
from services.runtime.config.text import diff

NAME: Final = "journal"
CHANGES_TOLD: Final = 5
RIGHT: Final = 'another period of the past, "14d..7d" or "2026-11-01..2026-11-08"'


class Period(NamedTuple):
    """UTC seconds; `name` as a person reads it."""

    since: float
    until: float

    @property
    def name(self) -> str:
        return f"{units.iso(self.since)} to {units.iso(self.until)}"


class Journal(Judged):
    """A `Bench`.  `pasts`: the period that is tuned on, then those that are held out."""

    name = NAME
    against = "present"
    limits: tuple[goals.Limit, ...] = ()

    def __init__(self, file: Path, pasts: Sequence[Past], unknown: Unknown, notes: list[str]) -> None:
        """Raises ConfigError."""
        self.file, self.unknown = file, unknown
        self.text = configuration.text_of(file)
        self.document = configuration.document_of(self.text, file.name)
        self.cloud = configuration.loads(self.text, file.name, file.absolute().parent).cloud
        own, *others = pasts
        self._pasts = {"": own, **{Period(past.since, past.until).name: past for past in others}}
        self.worlds = tuple(name for name in self._pasts if name)
        self.kinds: dict[str, str] = {department.name: department.kind for department in self.cloud.departments}
        self.sizes: tuple[int, ...] = (own.hosts,)
        self.parts = {
            "configuration": f"{file.name}, {digest(self.cloud)}",
            "period": Period(own.since, own.until).name,
            "events": f"{len(own.events):,}; jobs that did not end by themselves: {unknown}",
        }
        self.notes = [*notes, *self._differs(own)]

    def _differs(self, own: Past) -> list[str]:
        """A trial has what the file says; what it is compared with has what was in force then."""
        changes = diff(own.config, self.cloud) if own.config is not None else []
        if not changes:
            return []
        some = "; ".join(changes[:CHANGES_TOLD]) + ("; …" if len(changes) > CHANGES_TOLD else "")
        return [
            f"{self.file.name} is not what was in force when the period began, and trials have what it says: {some}"
        ]

    def legal(self, name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
        if name == HOSTS:
            whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= HOSTS_MAX
            return None if whole else f"should be a whole number between 1 and {HOSTS_MAX:,}"
        return super().legal(name, value, beside)

    def problems(self, values: Mapping[str, Any]) -> list[Problem]:
        return self._set(values)[1]

    def run(self, values: Mapping[str, Any], world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        hosts = values.get(HOSTS)
        settings = {name: value for name, value in values.items() if name != HOSTS}
        return self._played(world, self._set(settings)[0] if settings else None, hosts, metrics)

    def reference(self, world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        return self._played(world, None, None, metrics)

    def proposed(self, point: Point) -> str:
        """Rule 3: the text of the configuration with the values set.  CliError without TOML Kit."""
        try:
            import tomlkit
        except ImportError as error:
            raise CliError(
                FAILED, "to write a configuration needs TOML Kit", "pip install 'phoenix-cloud[tune]'"
            ) from error

        text = tomlkit.parse(self.text)
        settings = {name: value for name, value in point.items() if name != HOSTS}
        for (path, _), value in zip(self._changed(settings).places.items(), settings.values(), strict=True):
            place: Any = text
            for part in path[:-1]:
                if isinstance(part, str) and part not in place:
                    place[part] = tomlkit.table()
                place = place[part]
            place[path[-1]] = value
        return tomlkit.dumps(text)

    def _played(
        self, world: str, config: CloudConfig | None, hosts: int | None, metrics: Iterable[str]
    ) -> dict[str, float | None]:
        played = self._pasts[world].play("tune", config, hosts, unknown=self.unknown)
        return kept_of(measure(played.outcome), metrics, self.kinds)

    def _changed(self, values: Mapping[str, Any]) -> vary.Changed:
        return vary.changed(self.document, values, 0)

    def _set(self, values: Mapping[str, Any]) -> tuple[CloudConfig, list[Problem]]:
        """Rule 1."""
        changed = self._changed({name: value for name, value in values.items() if name != HOSTS})
        config, found = configuration.read(changed.document, self.file.absolute().parent)
        return config.cloud, [*changed.problems, *found]


def period_of(option: str, word: str, now: float) -> Period:
    """`14d..7d`.  Raises CliError."""
    first, dots, last = word.partition("..")
    if not dots:
        raise usage(f"{option} {word}: should be {RIGHT}")
    since, until = instant(option, first, now), now if last in ("", "now") else instant(option, last, now)
    return Period(since, until)


def check(own: Period, others: Sequence[Period], now: float) -> None:
    """Each begins before it ends, and has ended; what is tuned on is not held out.  Raises CliError."""
    for period in (own, *others):
        if not period.since < period.until <= now:
            raise usage(f"{period.name}: a period begins before it ends, and has ended", f"name {RIGHT}")
    for other in others:
        if other.since < own.until and own.since < other.until:
            raise usage(
                f"--holdout {other.name}: it overlaps what is tuned on, {own.name}", "name a period before or after"
            )
