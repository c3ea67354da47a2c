"""`phoenix dashboard`: where the live page is, with a code that logs in there."""

from __future__ import annotations

import argparse
import webbrowser
from typing import Final

from phoenix.cli import cloud, printing
from phoenix.cli.errors import FAILED, CliError

HELP: Final = """examples:
  phoenix dashboard              the page's address; it logs in once, within a minute
  phoenix dashboard --open       and open it in this machine's browser
  phoenix dashboard --as alice   as alice sees it
Without a code the page asks for a token. What it shows: docs/reference/page.md"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", "-o", action="store_true", help="open it in this machine's browser")


def run(args: argparse.Namespace) -> int:
    door = cloud.find(args).operator()
    monitor = door.at(door.get("/v1/session")["url"])  # a code is a session's beginning: the door passes on reads alone
    answer = monitor.post("/v1/session/code", {})
    address = f"{answer['url']}/#code={answer['code']}"
    if args.json:
        printing.json({"url": answer["url"], "address": address, "expires_s": answer["expires_s"]})
    else:
        print(address)
    if args.open and not webbrowser.open(address):
        raise CliError(FAILED, "no browser could be opened here", "open the address above, within a minute")
    return 0
