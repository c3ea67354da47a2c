"""`make rush`: the shape of a World Cup match on a cloud of this machine, by rules and with fixed numbers of instances.

    python -m phoenix.rush [--seconds 240] [--out out/rush] [--balancer embedded|haproxy] [--variants cpu,peak]
    python -m phoenix.rush --shape load.csv --since 2026-07-01T12:00 --until 2026-07-01T18:00
    python -m phoenix.rush --again out/rush       tell and draw what was recorded there, without a run

Variants: `cpu` (target-tracking by CPU utilisation), `requests` (also by requests a second), `threshold` (the paper's rule),
`mean` and `peak` (as many instances all the time as `cpu` had in the mean, and at most).  Each has a cloud of its own, the
same load and the same jobs.

Exit codes: 0 done, also if requests failed (the report says how many), 1 it could not be done, 2 mistyped, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from phoenix.cli.errors import FAILED, INTERRUPTED, OK, USAGE, CliError
from phoenix.load import shape
from phoenix.load.curve import Curve, LoadError
from phoenix.rush import play, plot, recording, report, setting
from phoenix.rush.account import Account, account
from phoenix.rush.recording import Recording
from phoenix.rush.setting import Setting, Variant
from phoenix.rush.site import SiteError, plainly, run
from phoenix.simulate import plots_style, traces
from phoenix.simulate.text_input import InputError

VARIANTS: Final = ("cpu", "requests", "threshold", "mean", "peak")
MATCH: Final = (
    "1998-06-15T11:00",
    "1998-06-15T17:00",
)  # England - Tunisia; the busiest minute of the two weeks is in it
SECONDS_MIN: Final = 20.0  # less is over before a rule has seen anything


def main(argv: list[str] | None = None) -> int:
    args = _parse(argv)
    try:
        if args.again is not None:
            return _tell(_recorded(args.again), args.again)
        return run(_run(args))
    except (LoadError, InputError) as error:
        print(f"rush: {error}", file=sys.stderr)
        return USAGE
    except (
        SiteError,
        CliError,
        OSError,
        msgspec.DecodeError,
        aiohttp.ClientError,
        TimeoutError,
        ExceptionGroup,
    ) as error:
        print(f"rush: {plainly(error)}", file=sys.stderr)
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("\nrush: interrupted; everything is stopped", file=sys.stderr)
        return INTERRUPTED


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m phoenix.rush", description="A rush on real instances.")
    parser.add_argument(
        "--seconds", type=float, default=240.0, help="the match in so long (default 240; 60 for a quick look)"
    )
    parser.add_argument("--out", type=Path, default=Path("out/rush"), help="where results go (default ./out/rush)")
    parser.add_argument("--balancer", choices=("embedded", "haproxy"), default="haproxy")
    parser.add_argument(
        "--variants", default=",".join(VARIANTS), help=f"of {', '.join(VARIANTS)}; cpu is always played"
    )
    parser.add_argument("--shape", type=Path, help="CSV with a column requests (default: the World Cup's, of a match)")
    parser.add_argument("--since", help="from this row of the shape on")
    parser.add_argument("--until", help="up to this row of the shape")
    parser.add_argument("--again", type=Path, metavar="DIR", help="tell what was recorded there, without a run")
    args = parser.parse_args(argv)
    wrong = [name for name in args.variants.split(",") if name not in VARIANTS]
    if wrong:
        parser.error(f"{wrong[0]!r} is none of {', '.join(VARIANTS)}")
    if args.seconds < SECONDS_MIN:
        parser.error(f"--seconds {args.seconds:g}: at least {SECONDS_MIN:g}")
    return args


async def _run(args: argparse.Namespace) -> int:
    chosen = setting.of_this_machine(args.balancer)
    path, since, until = _shape(args)
    capacity = await play.capacity(chosen, _say)
    peak = chosen.peak_rate(capacity)
    curve = shape.read(path, seconds=args.seconds, peak=peak, since=since, until=until)
    options = ["--shape", str(path), "--for", f"{args.seconds:g}s", "--peak", f"{peak!r}"]
    options += ["--calibrate"]
    options += [word for name, value in (("--since", since), ("--until", until)) if value for word in (name, value)]
    done: list[Recording] = []
    for name in _ordered(args.variants):
        variant = _variant(name, done, capacity)
        one = await play.play(chosen, variant, curve, tuple(options), capacity, _say)
        recording.save(one, args.out / f"{len(done)}-{name}.json")
        done.append(one)
    return _tell(done, args.out)


def _shape(args: argparse.Namespace) -> tuple[Path, str | None, str | None]:
    if args.shape is not None:
        return args.shape, args.since, args.until
    found = traces.find(traces.WORLD_CUP)
    if found is None:
        raise LoadError(f"{traces.WORLD_CUP} is not here ({traces.looked_in()}); name a table of your own with --shape")
    return found, args.since or MATCH[0], args.until or MATCH[1]


def _ordered(names: str) -> list[str]:
    """`cpu` first: the fixed numbers are its own."""
    return [name for name in VARIANTS if name == VARIANTS[0] or name in names.split(",")]


def _variant(name: str, done: Sequence[Recording], capacity: float) -> Variant:
    if name == "cpu":
        return Variant(name="target, by CPU")
    if name == "requests":
        return Variant(name="target, by requests", requests_per_instance=setting.TARGET * capacity)
    if name == "threshold":
        return Variant(name="80 %, 20 s", rule="threshold")
    had = account(done[0])
    count = had.most if name == "peak" else max(1, round(had.mean))
    return Variant(name=f"{count} fixed ({name})", exact=count)


def _recorded(directory: Path) -> list[Recording]:
    files = sorted(directory.glob("[0-9]-*.json"))
    if not files:
        raise LoadError(f"{directory}: no recording is there; make rush makes one")
    return [recording.load(file) for file in files]


def _tell(done: Sequence[Recording], out: Path) -> int:
    """Report and picture of all recordings, into the directory and to the screen."""
    chosen, capacity = done[0].setting, done[0].capacity
    accounts: list[Account] = [account(one) for one in done]
    told = report.text(chosen, capacity, accounts)
    (out / "report.txt").write_text(told + "\n")
    (out / "report.json").write_bytes(report.json(accounts, chosen, capacity))
    (out / "seconds.csv").write_text(report.seconds_csv(done))
    picture = plot.figure(
        done, title="A rush: by rules, and with fixed numbers of instances", caption=_caption(done[0])
    )
    plots_style.save(picture, out / "rush.svg")
    print(f"{told}\n\nresults: {out}/report.txt, report.json, seconds.csv, rush.svg; recordings beside them")
    return OK


def _caption(one: Recording) -> str:
    curve: Curve = one.curve
    chosen: Setting = one.setting
    return (
        f"{one.load.requests:,} requests in {curve.end_s:.0f} s, at most {curve.peak:.0f}/s, through {chosen.balancer}; "
        f"an instance serves {one.capacity:.1f}/s. Latency from when a request was due; a failed one is at the top. "
        f"One run on {chosen.cpus} cores."
    )


def _say(text: str) -> None:
    print(f"rush: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it has started ends with it
    sys.exit(main())
