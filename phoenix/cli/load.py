"""`phoenix load URL`: requests at their time, whatever the answers; what came back, and when."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Final

from phoenix.cli import files
from phoenix.cli.errors import FAILED, OK, CliError, usage
from phoenix.cli.parser import amount, at_least_zero, count, share
from phoenix.cli.units import parse_time_s

if TYPE_CHECKING:
    from phoenix.load.curve import Curve, Plan
    from phoenix.load.record import Record
    from phoenix.load.target import Target

HELP: Final = """examples:
  phoenix load 127.0.0.1:21133 --rate 50 --for 60s               50 a second, at random moments (Poisson), for a minute
  phoenix load 127.0.0.1:21133 --rate 50 --for 60s --paced       evenly, one each 20 ms
  phoenix load 127.0.0.1:21133 --shape load.csv --peak 80 --for 4m
                                                                 the shape of a day (CSV with a column requests) in 4 minutes
  phoenix load 127.0.0.1:21133 --rate 20 --for 30s --post 0.2 --fresh 0.3 --csv requests.csv

Latency is counted from when a request was due, so a service that stalls cannot hide it.  Exit code 1 if a request failed."""
INTERVAL: Final = "1s"
TIMEOUT: Final = "10s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="http://HOST:PORT/PATH, on this machine")
    load = parser.add_argument_group("load")
    load.add_argument("--rate", type=amount, metavar="R", help="requests a second")
    load.add_argument(
        "--for", dest="for_time", metavar="TIME", help="how long; with --shape: play the table in this time"
    )
    load.add_argument(
        "--shape", type=files.named, metavar="FILE", help="CSV with a column `requests`: the shape of the load"
    )
    load.add_argument("--peak", type=amount, metavar="R", help="with --shape: requests a second of its busiest row")
    load.add_argument("--scale", type=amount, metavar="F", help="with --shape: scale the table's rates by F")
    load.add_argument("--since", metavar="WHEN", help="with --shape: only rows from this date (or second) on")
    load.add_argument("--until", metavar="WHEN", help="with --shape: only rows before this date (or second)")
    load.add_argument("--paced", action="store_true", help="evenly; default: at random moments (Poisson)")
    load.add_argument("--seed", type=at_least_zero, default=1, metavar="N", help="of the random moments (default 1)")
    asked = parser.add_argument_group("requests")
    asked.add_argument("--post", type=share, default=0.0, metavar="SHARE", help="the share of POST requests (0 to 1)")
    asked.add_argument("--body", type=at_least_zero, default=128, metavar="BYTES", help="of a POST (default 128)")
    asked.add_argument(
        "--fresh",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="the share of requests with a connection of their own (0 to 1)",
    )
    asked.add_argument(
        "--timeout", default=TIMEOUT, metavar="TIME", help=f"a request fails after this time (default {TIMEOUT})"
    )
    asked.add_argument("--connections", type=count, metavar="N", help="open at most (default 512); more is not sent")
    asked.add_argument("--other-host", metavar="HOST", help="the URL's host, if you may put load on another machine")
    told = parser.add_argument_group("results")
    told.add_argument(
        "--csv", type=files.text_out, metavar="FILE", help="a line for each request; - is standard output"
    )
    told.add_argument(
        "--every", default=INTERVAL, metavar="TIME", help=f"results over time in intervals of this length ({INTERVAL})"
    )
    told.add_argument("--calibrate", action="store_true", help="first find out how much the generator itself can send")


def run(args: argparse.Namespace) -> int:
    from phoenix.load.curve import LoadError
    from phoenix.simulate.text_input import InputError

    try:
        return asyncio.run(_play(args))
    except (LoadError, InputError) as error:
        raise usage(str(error)) from error


async def _play(args: argparse.Namespace) -> int:
    from phoenix.cli import load_report as tell
    from phoenix.load import calibrate, results
    from phoenix.load.curve import plan
    from phoenix.load.target import parse

    _check(args)
    every_s = _time_s("--every", args.every)
    target = parse(args.url, args.other_host)
    what = plan(_curve(args), seed=args.seed, paced=args.paced, fresh_share=args.fresh, post_share=args.post)
    ceiling = await calibrate.ceiling(args.fresh) if args.calibrate else None
    record = await _send(args, target, what)
    found = results.sum_up(record, every_s, ceiling)
    if args.csv:
        try:
            tell.write_csv(record, args.csv)
        except OSError as error:
            raise CliError(FAILED, f"{args.csv} cannot be written: {error.strerror}") from error
    if args.json:
        sys.stdout.buffer.write(tell.json(found))
    else:
        print(tell.text(found), file=files.beside(args.csv))
    return FAILED if found.failed else OK


async def _send(args: argparse.Namespace, target: Target, what: Plan) -> Record:
    from phoenix.load.generator import CONNECTIONS_MAX, Generator

    timeout_s, most = _time_s("--timeout", args.timeout), args.connections or CONNECTIONS_MAX
    generator = Generator(target, what, body=b"x" * args.body, timeout_s=timeout_s, connections_max=most)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, generator.stop)
    curve = what.curve
    told = f"{len(what.due):,} requests in {curve.end_s:g} s, at most {curve.peak:,.1f}/s"
    print(f"phoenix: the load begins: {told}; Ctrl-C ends it early, with its results", file=sys.stderr, flush=True)
    return await generator.run()


def _check(args: argparse.Namespace) -> None:
    from phoenix.load.target import BODY_BYTES_MAX
    from phoenix.simulate import places

    if (args.rate is None) == (args.shape is None):
        raise usage("give either a rate or a shape", "--rate 50 --for 60s, or --shape load.csv --peak 80 --for 4m")
    if args.rate is not None and (args.peak or args.scale or args.since or args.until):
        raise usage("--peak, --scale, --since and --until belong to --shape")
    if args.rate is not None and args.for_time is None:
        raise usage("how long?", "--for 60s")
    if args.csv is not None:
        files.check_alone("--csv", args.csv, as_json=args.json)
        places.check_file("--csv", args.csv)
    if args.body > BODY_BYTES_MAX:
        raise usage(f"--body {args.body}: at most {BODY_BYTES_MAX} bytes")


def _curve(args: argparse.Namespace) -> Curve:
    from phoenix.load import shape
    from phoenix.load.curve import constant

    seconds = None if args.for_time is None else _time_s("--for", args.for_time)
    if args.rate is not None:
        return constant(args.rate, seconds or 0.0)
    return shape.read(args.shape, seconds=seconds, peak=args.peak, scale=args.scale, since=args.since, until=args.until)


def _time_s(option: str, text: str) -> float:
    try:
        seconds = parse_time_s(text)
    except ValueError as error:
        raise usage(f"{option}: {error}") from error
    if seconds <= 0:
        raise usage(f"{option}: a time above 0 is needed", f"{option} 10s")
    return seconds
