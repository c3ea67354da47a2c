"""The variants side by side: a table for people, JSON, and a CSV with a row for each second.  Pure, but for the file names."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from phoenix.cli import tables
from phoenix.cli.load_report import milliseconds
from phoenix.rush import levels
from phoenix.rush.account import Account
from phoenix.rush.recording import Recording
from phoenix.rush.setting import DOWN_WINDOW_S, TARGET, THRESHOLD_WINDOW_S, VMS_PART, Setting
from phoenix.rush.site import BATCH, WEB

Cell = Callable[[Account], str]
SERVICES: Final = ("admission", "provisioner", "scheduler", "executor", "monitor", "nats", "opennebula")
HEAD: Final = (
    "variant", "at_s", "due", "failed", "p50_s", "p99_s", "needed", "ideal", "wanted", "serving", "hosts_web", "hosts_batch",
)  # fmt: skip


def _failures(found: Account) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.load.failures.items())
    return f"{found.load.failed:,}{f' ({kinds})' if kinds else ''}"


def _rises(found: Account) -> str:
    rises = found.rises
    if found.variant.exact is not None or rises.p50 is None:
        return f"- ({rises.missed} not met)" if rises.missed else "-"
    return f"{rises.p50:.1f} s, {rises.max:.1f} s ({rises.missed} of {rises.met + rises.missed} not met)"


def _lag(found: Account) -> str:
    own = found.load.generator
    return f"p99 {milliseconds(own.lag_s.p99)}, {own.cpu_share:.0%} of a core, {own.peak_rate:.0f} of {own.ceiling or 0:,.0f}/s"


ROWS: Final[tuple[tuple[str, Cell], ...]] = (
    ("requests", lambda a: f"{a.load.requests:,}"),
    ("failed", _failures),
    ("latency p50", lambda a: milliseconds(a.load.latency_s.p50)),
    ("latency p99", lambda a: milliseconds(a.load.latency_s.p99)),
    ("latency p99.9", lambda a: milliseconds(a.load.latency_s.p999)),
    ("instances, mean and most", lambda a: f"{a.mean:.1f}, {a.most}"),
    ("instance-seconds served", lambda a: f"{a.capacity.served:,.0f} (ideal {a.capacity.ideal:,.0f})"),
    ("  over the ideal", lambda a: f"{a.capacity.over:,.0f}"),
    ("  short of it", lambda a: f"{a.capacity.short:,.0f}"),
    ("  overload", lambda a: f"{a.capacity.overload:,.0f}"),
    ("rise to capacity, p50 and max", _rises),
    ("hosts to web, to batch", lambda a: f"{a.hosts_to_web}, {a.hosts_to_batch}"),
    ("batch: core-seconds used", lambda a: f"{a.batch.used_core_s:,.0f}"),
    ("  of these lost", lambda a: f"{a.batch.lost_core_s:,.0f} ({a.batch.preempted} attempts)"),
    ("  jobs completed", lambda a: f"{a.batch.completed}"),
    ("machine busy, mean; full for", lambda a: f"{a.machine_busy:.0%}; {a.machine_busy_s} s"),
    ("balancer waited for a CPU", lambda a: f"{a.waited:.1%} of the time"),
    ("generator: late, CPU, of ceiling", _lag),
    ("doubts (below)", lambda a: str(len(a.doubts) or "none")),
)


def text(setting: Setting, capacity: float, accounts: Sequence[Account]) -> str:
    """Everything that people read."""
    head = ("", *(one.variant.name for one in accounts))
    rows = [(name, *(cell(one) for one in accounts)) for name, cell in ROWS]
    parts = [about(setting, capacity), tables.render(head, rows)]
    parts += [f"Doubtful, {one.variant.name}: {'; '.join(one.doubts)}." for one in accounts if one.doubts]
    parts += [_stages(one) for one in accounts if one.stages]
    parts += [_cpu(one) for one in accounts[:1]]
    return "\n\n".join(parts)


def about(setting: Setting, capacity: float) -> str:
    """How large everything is, and why so."""
    vms = VMS_PART * setting.cpus
    lines = [
        f"{setting.hosts} hosts of {setting.cores} cores, each core {setting.core_share:g} of a real one: "
        f"all VMs together may use {vms:.2g} of the machine's {setting.cpus} cores.",
        f"An instance has {setting.instance_cores} cores, {setting.instance_cpu:.3f} of a real one; a request burns "
        f"{setting.cpu_ms:g} ms; one instance was measured to serve {capacity:.1f}/s.",
        f"Peak of the load: {setting.peak_rate(capacity):.0f} requests/s, {setting.peak_instances} instances at {TARGET:.0%}; "
        f"{setting.post_share:.0%} POST, {setting.fresh_share:.0%} on connections of their own; through {setting.balancer}.",
        f"Rules: target {TARGET:.0%}, down window {DOWN_WINDOW_S:g} s (300 s by default; time is faster here); "
        f"threshold {TARGET:.0%} over {THRESHOLD_WINDOW_S:g} s.",
    ]
    return "\n".join(lines)


def _stages(found: Account) -> str:
    rows = [(one.meaning, milliseconds(one.p50_s), milliseconds(one.max_s), f"{one.share:.0%}") for one in found.stages]
    title = f"From signal to service, {found.variant.name}, {found.stages[0].chains} instances on hosts from batch:"
    total = [("in all", milliseconds(found.chain_p50_s), milliseconds(found.chain_max_s), "100%")]
    rows += total
    return title + "\n" + tables.render(("STAGE", "P50", "MAX", "SHARE"), rows, right="P50 MAX SHARE")


def _cpu(found: Account) -> str:
    """CPU seconds by process, the cloud's services together."""
    seconds = found.load.seconds
    cloud = math.fsum(used for name, used in found.cpu_s.items() if name.partition(".")[0] in SERVICES)
    rest = {name: used for name, used in found.cpu_s.items() if name.partition(".")[0] not in SERVICES}
    words = [f"services {cloud / seconds:.0%}", *(f"{name} {used / seconds:.0%}" for name, used in rest.items())]
    return f"CPU of the cloud, of one core, {found.variant.name}: {', '.join(words)}"


def json(accounts: Sequence[Account], setting: Setting, capacity: float) -> bytes:
    told = {"setting": setting, "core_share": setting.core_share, "capacity": capacity, "variants": accounts}
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def seconds_csv(recordings: Sequence[Recording]) -> str:
    """A row for each interval of each variant: what was due, how it went, and the levels at its begin."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    for recording in recordings:
        hosts = levels.holders(recording)
        rows = (
            levels.needed(recording), levels.ideal(recording), levels.wanted(recording), levels.serving(recording),
            hosts[WEB], hosts[BATCH],
        )  # fmt: skip
        for piece in recording.load.intervals:
            found = (f"{levels.at(one, piece.at_s):g}" for one in rows)
            times = (f"{value:.6f}" if value is not None else "" for value in (piece.p50, piece.p99))
            writer.writerow((recording.variant.name, f"{piece.at_s:g}", piece.due, piece.failed, *times, *found))
    return out.getvalue()
