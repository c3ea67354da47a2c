"""The experiments that come with the product: `phoenix simulate NAME`.

One module each, named as the experiment with underscores.  It has `HELP` (a few lines, with examples), `add_arguments(parser)`
and `run(args) -> int` (an exit code), as a command of `phoenix` has.  The front (`phoenix.cli.simulate`) makes the parser, adds
`--json`, and turns `CliError`, `InputError` and Ctrl-C into sentences and exit codes; everything else belongs to the module.
Modules are imported when they are asked for: none of them slows down the others.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple


class Builtin(NamedTuple):
    """`about` completes the sentence "phoenix simulate NAME: …"."""

    name: str
    about: str

    def module(self) -> ModuleType:
        return import_module(f"{__name__}.{self.name.replace('-', '_')}")


BUILTIN: Final = (
    Builtin("phoenix-cloud", "the paper's comparison: one shared cluster against two dedicated ones"),
    Builtin("svmsched", "services that share a cluster: static parts against short jobs that borrow"),
    Builtin("policies", "every order with every order of victims, on four logs"),
    Builtin("intergrid", "leases with time slots among external ones that make way for them, by whom and at what cost"),
    Builtin("thiao", "whole-node jobs of one thread: what VMs beside a host's own job are worth"),
    Builtin("phoenix-autoscale", "how web scaling rules follow a day-and-night load"),
)
BY_NAME: Final = {builtin.name: builtin for builtin in BUILTIN}
