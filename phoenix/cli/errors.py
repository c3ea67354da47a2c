"""Exit codes, and the one exception that every command may raise: it is printed as a sentence, never as a stack trace."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from phoenix.client.errors import NOT_KNOWN as NOT_KNOWN
from phoenix.client.errors import Denied, Invalid, PhoenixError, Unavailable

if TYPE_CHECKING:
    from schemas.problems import Code

OK: Final = 0
FAILED: Final = 1  # the operation failed, or was refused for what it asks
USAGE: Final = 2  # a mistyped command or option, or a thing that does not exist
UNREACHABLE: Final = 3  # no cloud is running there, or it does not answer
DENIED: Final = 4  # the credential may not do this
UNKNOWN: Final = 5  # the cloud was asked for a change and gave no answer: whether it happens is not known
INTERRUPTED: Final = 130  # Ctrl-C, as a shell counts it

MEANINGS: Final = {
    OK: "done",
    FAILED: "the operation failed or was refused",
    USAGE: "mistyped command, option or value, or an unknown job, host, department or user",
    UNREACHABLE: "no cloud is running there, or it does not answer",
    DENIED: "this credential may not do that",
    UNKNOWN: f"no answer came: {NOT_KNOWN}",
    INTERRUPTED: "interrupted with Ctrl-C",
}
_PROBLEMS: Final[dict[int, Code]] = {
    USAGE: "invalid",
    UNREACHABLE: "unavailable",
    DENIED: "denied",
    UNKNOWN: "unanswered",
}
_INDEXED: Final = re.compile(r"([^\[]*)(?:\[(\d{1,9})\])?")


class Stdout:
    """`is_whole`: this command has written an answer in JSON, and nothing may follow it."""

    is_whole = False


class CliError(Exception):
    """What went wrong (`message`), what would be right (`hint`), and the exit code.  `answer`: the cloud's problem
    (`schemas.problems`), if it was the cloud that refused."""

    def __init__(self, code: int, message: str, hint: str = "", answer: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.answer = answer

    def __reduce__(self) -> tuple[type[CliError], tuple[int, str, str, dict[str, Any] | None]]:
        """So that it survives the way back from a worker process."""
        return type(self), (self.code, self.message, self.hint, self.answer)

    def with_answer(self, answer: dict[str, Any]) -> CliError:
        """The same with another problem of the cloud's."""
        return CliError(self.code, self.message, self.hint, answer)

    def problem(self) -> dict[str, Any]:
        """For `--json`: the cloud's, or one of this sentence."""
        if self.answer is not None and self.code != UNKNOWN:
            return self.answer
        from msgspec import to_builtins  # only on the way out

        from schemas.problems import problem

        return dict(to_builtins(problem(_PROBLEMS.get(self.code, "failed"), self.message)))


def usage(message: str, hint: str = "") -> CliError:
    return CliError(USAGE, message, hint)


_EXITS: Final = ((Denied, DENIED), (Invalid, USAGE), (Unavailable, UNREACHABLE))


def of_client(error: PhoenixError) -> CliError:
    """What the client library found wrong before anything was asked: with the address, the data directory, the token."""
    code = next((code for kind, code in _EXITS if isinstance(error, kind)), FAILED)
    return CliError(code, error.message, error.hint)


def in_words(
    refused: CliError, options: Mapping[str, str], given: Mapping[str, Sequence[str]] | None = None
) -> CliError:
    """What the cloud refused, with the option of the command line (`options`: field of the request -> option) in place of the
    field.  `given`: the values of what may be said several times, so that the one that is wrong is named."""
    field = str((refused.answer or {}).get("field") or "")
    name, index = _INDEXED.match(field).groups()  # type: ignore[union-attr]  # it matches anything
    if name not in options:
        return refused
    option, values = options[name], (given or {}).get(name, ())
    if index is not None and int(index) < len(values):
        option += f" {values[int(index)]}"
    before, found, after = refused.message.partition(f"{field}: ")
    message = f"{before}{option}: {after}" if found else f"{option}: {refused.message}"
    return CliError(refused.code, message, refused.hint, refused.answer)
