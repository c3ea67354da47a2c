"""Every command of `phoenix`: its name, what it is for, and the module that holds it.

A command module has `HELP` (a few lines, with examples), `add_arguments(parser)` and `run(args) -> int`; it may have
`prepared(argv)`, which sees the words before the parser does.  A command that parses for itself (`parses`) has `main(argv)`
instead of the last two.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Command(NamedTuple):
    name: str
    about: str
    group: str
    verbs: tuple[str, ...] = ()  # for completion
    reads: bool = False  # takes --json
    parses: bool = False  # its own words


_CLOUD: Final = "The cloud"
_WORK: Final = "Jobs"
_SITE: Final = "Hosts and departments"
_WHAT_IF: Final = "What if"
_TOOL: Final = "This tool"

COMMANDS: Final = (
    Command("up", "start a cloud on this machine", _CLOUD),
    Command("down", "stop it; the data stays", _CLOUD),
    Command("status", "endpoints, credentials' files, processes and their health", _CLOUD, reads=True),
    Command(
        "config", "check, compare or apply a configuration while running", _CLOUD, ("check", "diff", "apply"), True
    ),
    Command("doctor", "is an OpenNebula ready for this cloud, and if not, what to do", _CLOUD, reads=True),
    Command("token", "HTTP tokens with an end: create, list, revoke", _CLOUD, ("create", "list", "revoke"), reads=True),
    Command("snapshots", "make the services' snapshots anew from the journal", _CLOUD, ("rebuild",)),
    Command("top", "live screen: hosts by owner, queue, events", _CLOUD),
    Command("dashboard", "the live page's address, logged in; --open opens it", _CLOUD, reads=True),
    Command("submit", "submit a job script, as with sbatch", _WORK, reads=True),
    Command("queue", "jobs that wait and run", _WORK, reads=True),
    Command("history", "jobs since the beginning, by filter, as sacct does; rebuild", _WORK, ("rebuild",), reads=True),
    Command("show", "one job: state, attempts, exit code, times", _WORK, reads=True),
    Command("why", "why a job waits and when it starts; why a department or a host is as it is", _WORK, reads=True),
    Command(
        "story",
        "one job's, instance's, host's or department's whole life, with what led to each step",
        _WORK,
        reads=True,
    ),
    Command("output", "what a job wrote", _WORK, reads=True),
    Command("cancel", "cancel jobs", _WORK, reads=True),
    Command("hold", "keep pending jobs from starting", _WORK, reads=True),
    Command("release", "lift a hold", _WORK, reads=True),
    Command(
        "lease",
        "machines for a time: create, list, show, extend, cancel",
        _WORK,
        ("create", "list", "show", "extend", "cancel"),
        reads=True,
    ),
    Command("launch", "inside a job's script: start ranks on all its nodes", _WORK, parses=True),
    Command("checkpoint", "inside a job's script: what it has done until now is safe", _WORK, parses=True),
    Command("hosts", "hosts and who holds them; cordon, drain, uncordon", _SITE, ("cordon", "drain", "uncordon"), True),
    Command("departments", "departments: demand, quota, hosts held", _SITE, reads=True),
    Command(
        "policies", "orders, victims and scaling rules: which there are, what each is", _SITE, ("show", "check"), True
    ),
    Command("events", "what happened; --follow for what happens", _SITE, reads=True),
    Command("audit", "who asked for what, from where, and what came of it", _SITE, reads=True),
    Command("lending", "whose hosts are lent to whom, on what terms", _SITE, reads=True),
    Command("store", "what departments have in the object store, and how much each may have", _SITE, reads=True),
    Command("usage", "who held, used, lent and lost how much, since when", _SITE, reads=True),
    Command("bill", "what departments owe for what they had, by a price table", _SITE, reads=True),
    Command("instances", "a web department's instances: state, release, host, sessions, CPU", _SITE, reads=True),
    Command("logs", "what an instance of a web department writes", _SITE, reads=True),
    Command("scale", "a web department's minimum or exact number of instances", _SITE, reads=True),
    Command("deploy", "what a web department's instances run: a new release, instance by instance", _SITE, reads=True),
    Command("releases", "a web department's releases, and how far each is", _SITE, reads=True),
    Command(
        "secret", "values that a web department's instances are handed", _SITE, ("set", "list", "remove"), reads=True
    ),
    Command("signal", "publish a web department's load, or a claim", _SITE, reads=True),
    Command(
        "simulate",
        "what a cluster would do with given traces, policies and sizes",
        _WHAT_IF,
        reads=True,
        parses=True,
    ),
    Command("whatif", "when a job would start; what another configuration would have done", _WHAT_IF, reads=True),
    Command("tune", "search for settings under which an experiment does better", _WHAT_IF, reads=True),
    Command("load", "play load on a web service: requests at their time, whatever the answers", _WHAT_IF, reads=True),
    Command("completion", "completion for bash, zsh or fish", _TOOL, ("bash", "zsh", "fish")),
    Command("version", "versions of phoenix and of what it runs on", _TOOL, reads=True),
)
BY_NAME: Final = {command.name: command for command in COMMANDS}


VARIABLES: Final = {  # every one that this tool reads for itself
    "PHOENIX_DATA": "the embedded cloud's directory",
    "PHOENIX_URL": "a remote cloud, http://HOST:PORT, instead of an embedded one",
    "PHOENIX_TOKEN_FILE": "for a remote cloud: the file with your token",
    "PHOENIX_USER": "as --as",
    "PHOENIX_DEPARTMENT": "as --department where jobs are submitted",
    "PHOENIX_TRACES": "simulate: where the public traces are",
}


def overview() -> str:
    """The text of `phoenix --help`."""
    lines = ["usage: phoenix COMMAND [options]     (phoenix COMMAND --help tells more, with examples)", ""]
    for group in (_CLOUD, _WORK, _SITE, _WHAT_IF, _TOOL):
        lines += [f"{group}:", *(f"  {c.name:<12} {c.about}" for c in COMMANDS if c.group == group), ""]
    return "\n".join([*lines, *_FOOT])


_FOOT: Final = (
    "Options of every command:",
    "  --data DIR   the embedded cloud's directory (default: $PHOENIX_DATA, or ./.phoenix)",
    "  --as USER    act as this user (default: the operator; submit, signals of load: a user of the department)",
    "  --json       JSON on stdout, on everything that reads",
    "",
    "Variables:",
    *(f"  {name:<20} {about}" for name, about in VARIABLES.items()),
    "",
    "Exit codes: 0 done, 1 failed or refused, 2 mistyped or unknown, 3 not reachable, 4 denied,",
    "            5 no answer, so it is not known whether it is done, 130 Ctrl-C;",
    "            submit --wait and launch: the job's own.",
    "",
    "Examples:",
    "  phoenix up --detach                      a cloud of 16 hosts on this machine",
    "  phoenix submit --wrap 'hostname; date'   a job of one line",
    "  phoenix queue                            what waits and runs",
    "  phoenix why 3                            why job 3 does not start",
)
