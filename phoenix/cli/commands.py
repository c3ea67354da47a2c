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
    Command("doctor", "check whether an OpenNebula is ready for this cloud, and say what to fix", _CLOUD, reads=True),
    Command(
        "token", "HTTP tokens with an expiry: create, list, revoke", _CLOUD, ("create", "list", "revoke"), reads=True
    ),
    Command("snapshots", "rebuild the services' snapshots from the journal", _CLOUD, ("rebuild",)),
    Command("top", "live screen: hosts by owner, queue, events", _CLOUD),
    Command("dashboard", "the live page's address, logged in; --open opens it", _CLOUD, reads=True),
    Command("submit", "submit a job script, as with sbatch", _WORK, reads=True),
    Command("queue", "pending and running jobs", _WORK, reads=True),
    Command("history", "all jobs since the cloud began, as sacct shows them; rebuild", _WORK, ("rebuild",), reads=True),
    Command("show", "one job: state, attempts, exit code, times", _WORK, reads=True),
    Command(
        "why",
        "why a job waits and when it will start; why a department or a host is in its present state",
        _WORK,
        reads=True,
    ),
    Command(
        "story",
        "the history of a job, instance, host or department, with the cause of each step",
        _WORK,
        reads=True,
    ),
    Command("output", "a job's output", _WORK, reads=True),
    Command("cancel", "cancel jobs", _WORK, reads=True),
    Command("hold", "keep pending jobs from starting", _WORK, reads=True),
    Command("release", "lift a hold", _WORK, reads=True),
    Command(
        "lease",
        "reserve machines for a time: create, list, show, extend, cancel",
        _WORK,
        ("create", "list", "show", "extend", "cancel"),
        reads=True,
    ),
    Command("launch", "inside a job's script: start ranks on all its nodes", _WORK, parses=True),
    Command("checkpoint", "inside a job's script: save the work done so far", _WORK, parses=True),
    Command("hosts", "hosts and who holds them; cordon, drain, uncordon", _SITE, ("cordon", "drain", "uncordon"), True),
    Command("departments", "departments: demand, quota, hosts held", _SITE, reads=True),
    Command(
        "policies",
        "queue orders, victim orders and scaling rules: list, explain, check",
        _SITE,
        ("show", "check"),
        True,
    ),
    Command("events", "what happened; --follow for what happens", _SITE, reads=True),
    Command("audit", "the audit: who requested what, from where, and the outcome", _SITE, reads=True),
    Command("lending", "which hosts are lent to whom, and on what terms", _SITE, reads=True),
    Command("store", "object store usage and quota of each department", _SITE, reads=True),
    Command("usage", "hosts held, used, lent and lost by each department over time", _SITE, reads=True),
    Command("bill", "the bill of each department, by a price table", _SITE, reads=True),
    Command("instances", "a web department's instances: state, release, host, sessions, CPU", _SITE, reads=True),
    Command("logs", "the logs of a web instance", _SITE, reads=True),
    Command("scale", "a web department's minimum or exact number of instances", _SITE, reads=True),
    Command("deploy", "deploy a new release to a web department, instance by instance", _SITE, reads=True),
    Command("releases", "a web department's releases and their progress", _SITE, reads=True),
    Command("secret", "secrets passed to a web department's instances", _SITE, ("set", "list", "remove"), reads=True),
    Command("signal", "publish a web department's load, or a claim", _SITE, reads=True),
    Command(
        "simulate",
        "simulate a cluster with given traces, policies and sizes",
        _WHAT_IF,
        reads=True,
        parses=True,
    ),
    Command(
        "whatif", "predict when a job would start, or replay the past under another configuration", _WHAT_IF, reads=True
    ),
    Command("tune", "search for settings under which an experiment does better", _WHAT_IF, reads=True),
    Command("load", "generate open-loop load on a web service", _WHAT_IF, reads=True),
    Command("completion", "completion for bash, zsh or fish", _TOOL, ("bash", "zsh", "fish")),
    Command("version", "versions of phoenix and its dependencies", _TOOL, reads=True),
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
    lines = ["usage: phoenix COMMAND [options]     (see phoenix COMMAND --help for details and examples)", ""]
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
    "            5 no answer, so the outcome is unknown, 130 Ctrl-C;",
    "            submit --wait and launch: the job's own.",
    "",
    "Examples:",
    "  phoenix up --detach                      a cloud of 16 hosts on this machine",
    "  phoenix submit --wrap 'hostname; date'   a job of one line",
    "  phoenix queue                            pending and running jobs",
    "  phoenix why 3                            why job 3 does not start",
)
