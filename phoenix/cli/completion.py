"""`phoenix completion bash|zsh|fish`: commands, their verbs, options, jobs, hosts and departments.

The shell asks `phoenix completion --words -- WORDS…`, so that what is offered is what the parser knows: there is no list to
keep up to date.
"""

from __future__ import annotations

import argparse
from typing import Final

from phoenix.cli import cloud, suggest
from phoenix.cli.commands import BY_NAME, COMMANDS, Command
from phoenix.cli.errors import OK, CliError, usage

SHELLS: Final = ("bash", "zsh", "fish")
JOBS_MAX: Final = 50  # a longer list is of no use
HELP: Final = """examples:
  eval "$(phoenix completion bash)"          in ~/.bashrc
  eval "$(phoenix completion zsh)"           in ~/.zshrc
  phoenix completion fish | source           in ~/.config/fish/config.fish"""
_TAKE_JOBS: Final = frozenset(("show", "why", "output", "cancel", "hold", "release"))
_TAKE_DEPARTMENTS: Final = frozenset(("scale", "signal", "deploy", "releases", "instances"))

_BASH: Final = """_phoenix() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(phoenix completion --words -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" -- \
"${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _phoenix phoenix
"""
_ZSH: Final = """#compdef phoenix
_phoenix() {
    local -a found
    found=(${(f)"$(phoenix completion --words -- ${words[2,CURRENT-1]} 2>/dev/null)"})
    compadd -a found
    _files
}
compdef _phoenix phoenix
"""
_FISH: Final = """function __phoenix_words
    set -l words (commandline -opc)
    phoenix completion --words -- $words[2..-1] 2>/dev/null
end
complete -c phoenix -a '(__phoenix_words)'
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--words", action="store_true", help="what may follow the words given (used by the shells)")
    parser.add_argument("shell", nargs="*", metavar="bash|zsh|fish")


def run(args: argparse.Namespace) -> int:
    if args.words:
        print("\n".join(candidates(args.shell)))
        return OK
    if len(args.shell) != 1 or args.shell[0] not in SHELLS:
        wrong = args.shell[0] if args.shell else ""
        raise usage(
            f"{wrong!r} is not a shell known here" if wrong else "for which shell?", suggest.hint(wrong, SHELLS)
        )
    print(_SCRIPTS[args.shell[0]], end="")
    return OK


def candidates(words: list[str]) -> list[str]:
    """What may come next."""
    if not words:
        return [command.name for command in COMMANDS]
    command = BY_NAME.get(words[0])
    if command is None:
        return []
    found = _verbs(command) if len(words) == 1 else []
    return [*found, *_things(words), *_options(words)]


def _verbs(command: Command) -> list[str]:
    if command.name != "simulate":
        return list(command.verbs)
    from phoenix.simulate.experiments import experiments

    return list(experiments())


def _options(words: list[str]) -> list[str]:
    if BY_NAME[words[0]].parses and words[0] != "simulate":
        return []  # inside a job's script
    from phoenix.cli import parser as parsers

    return sorted(option for option in parsers.of(words[0], words[1:]).option_strings() if option.startswith("--"))


def _things(words: list[str]) -> list[str]:
    """Jobs, hosts and departments of the cloud; nothing if none answers: completion never complains."""
    try:
        where = cloud.find(argparse.Namespace(data=None, as_user=None))
        if words[-1] in ("--department", "-d") or (words[0] in _TAKE_DEPARTMENTS and len(words) == 1):
            return list(where.kinds)
        if words[-1] == "--as":
            return [user.name for user in where.users]
        if words[0] == "logs":
            found = where.operator().get("/v1/instances?all=1")["instances"]
            return [str(one["instance"]) for one in found[:JOBS_MAX]]
        if words[0] in _TAKE_JOBS:
            jobs = where.operator().get("/v1/queue", limit=JOBS_MAX)["jobs"]
            return [str(job.get("unit") or job["job"]) for job in jobs[:JOBS_MAX]]
        if words[0] == "lease" and len(words) == 2 and words[1] in ("show", "extend", "cancel"):
            return [str(lease["lease"]) for lease in where.operator().get("/v1/leases")["leases"][:JOBS_MAX]]
        if words[0] == "hosts" and len(words) > 1:
            return [str(host["host"]) for host in where.operator().get("/v1/hosts")["hosts"]]
    except CliError:
        return []
    return []
