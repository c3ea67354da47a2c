"""A script's #SBATCH and #PHOENIX lines, and how they meet the options of the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from phoenix.cli import sbatch, submit
from phoenix.cli.errors import CliError
from phoenix.cli.parser import make
from phoenix.cli.sbatch import GPUS

SCRIPT = """#!/bin/bash
#SBATCH --ntasks=4 -c 2
#SBATCH -t 0:10:00   # ten minutes
# an ordinary comment

#PHOENIX --on-what
#SBATCH --mail-user me@example.org
#SBATCH --licenses=low
#SBATCHED is none
#SBATCH -J "two words"
echo hello
#SBATCH -N 7
"""


def options(script: str, *argv: str) -> argparse.Namespace:
    """The options as `phoenix submit ARGV` merges them."""
    parser = make("submit")
    submit.add_arguments(parser)
    return submit.merged(parser.parse_args([*argv, "job.sh"]), sbatch.read(script).options)


def request(script: str, *argv: str) -> dict[str, object]:
    parser = make("submit")
    submit.add_arguments(parser)
    args = parser.parse_args([*argv, "job.sh"])
    return submit.request_of(args, submit.merged(args, sbatch.read(script).options), script)


def test_directives_stand_before_the_first_command() -> None:
    found = options(SCRIPT)
    assert (found.ntasks, found.cpus_per_task, found.time, found.job_name) == (4, 2, 600.0, "two words")
    assert found.nodes is None  # the line below the command is a comment


def test_unsupported_directives_are_named_with_their_line() -> None:
    assert sbatch.read(SCRIPT).unsupported == [
        "--on-what (line 6)",
        "--mail-user me@example.org (line 7)",
        "--licenses=low (line 8)",
    ]


def test_the_command_line_wins() -> None:
    found = options(SCRIPT, "-n", "9", "--job-name", "other")
    assert (found.ntasks, found.cpus_per_task, found.job_name) == (9, 2, "other")


def test_a_later_line_wins_over_an_earlier_one() -> None:
    assert options("#!/bin/sh\n#SBATCH -n 2\n#PHOENIX -n 3\n").ntasks == 3


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("-a", "abc"), "'abc' is no index or range; for example 1-100:2%10 or 1,5,7"),
        (("--array=5-1",), "'5-1' ends before it begins"),
        (("-d", "foo:2"), "'foo:2' is not one of afterok, afternotok, afterany, after with a job after a colon"),
        (("-d", "afterok:two"), "'two' is no job"),
    ],
)
def test_arrays_and_dependencies_that_are_mistyped_are_wrong_usage(argv: tuple[str, ...], told: str) -> None:
    with pytest.raises(CliError) as caught:
        options("#!/bin/sh\n", *argv)
    assert (caught.value.code, told in caught.value.message) == (2, True), caught.value.message
    assert caught.value.message.count(repr(argv[-1])) <= 1, "said once"
    assert options("#!/bin/sh\n", "-a", "1-9%2", "-d", "afterok:4:5_6").array == "1-9%2"


@pytest.mark.parametrize(
    ("content", "expected", "warned"),
    [
        (b"#!/bin/sh\r\n#SBATCH -n 2\r\necho\r\n", "#!/bin/sh\n#SBATCH -n 2\necho\n", True),
        (b"#!/bin/sh\r\n", "#!/bin/sh\n", True),
        (b"#!/bin/sh\nprintf 'a\r\n'\n", "#!/bin/sh\nprintf 'a\r\n'\n", False),  # it may be meant
        (b"#!/bin/sh", "#!/bin/sh", False),
    ],
)
def test_dos_line_ends_are_taken_as_those_of_unix_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, expected: str, warned: bool
) -> None:
    (tmp_path / "job.sh").write_bytes(content)
    assert submit.read_script(str(tmp_path / "job.sh"), "") == expected
    assert ("DOS line ends" in capsys.readouterr().err) == warned


@pytest.mark.parametrize("line", ["-a abc", "-d foo:2", "-n many", "-t soon", "--mem=lots", "-N 0", '-J "open'])
def test_a_wrong_directive_names_its_line(line: str) -> None:
    with pytest.raises(CliError, match="line 3 of the script") as caught:
        sbatch.read(f"#!/bin/sh\n\n#SBATCH {line}\n")
    assert caught.value.code == 2


def test_sizes_become_the_request() -> None:
    body = request("#!/bin/sh\n#SBATCH -N 2 --ntasks-per-node=3 -c 2 --mem-per-cpu=100\n")
    assert (body["tasks"], body["nodes"], body["cpus_per_task"]) == (6, 2, 2)
    assert (body["memory_mb"], body["memory_per_core_mb"]) == (None, 100)


def test_memory_is_of_a_node_or_of_a_core_and_the_command_line_s_takes_the_place_of_the_script_s() -> None:
    def memory(line: str, *argv: str) -> tuple[object, object]:
        body = request(f"#!/bin/sh\n#SBATCH {line}\n", *argv)
        return body["memory_mb"], body["memory_per_core_mb"]

    assert memory("--mem=0") == (0, None)
    assert memory("--mem 2G", "--mem-per-cpu", "1G") == (None, 1024)
    assert memory("--mem-per-cpu=1G", "--mem", "0") == (0, None)
    for line, argv in (("--mem=1G --mem-per-cpu=1G", ()), ("-n 1", ("--mem", "1", "--mem-per-cpu", "1"))):
        with pytest.raises(CliError, match="--mem is for each node and --mem-per-cpu for each core: not both"):
            memory(line, *argv)
    with pytest.raises(CliError, match="--mem 0 asks for all memory of a host"):
        memory("--mem-per-cpu=0")


def test_whose_a_job_is_becomes_the_request() -> None:
    body = request("#!/bin/sh\n#PHOENIX --service bof --best-effort\n", "--short", "--service", "jivaro")
    assert (body["service"], body["best_effort"], body["short"]) == ("jivaro", True, True)
    plain = request("#!/bin/sh\n")
    assert (plain["service"], plain["best_effort"], plain["short"]) == ("", False, False)


def test_what_exit_0_is_after_sigterm_is_the_job_s_word() -> None:
    assert request("#!/bin/sh\n#SBATCH --on-term=complete\n")["on_term"] == "complete"
    assert request("#!/bin/sh\n#PHOENIX --on-term complete\n", "--on-term", "stop")["on_term"] == "stop"
    assert request("#!/bin/sh\n")["on_term"] is None


def test_how_long_it_may_save_is_a_time_as_any() -> None:
    assert request("#!/bin/sh\n#SBATCH --grace=1:30\n")["grace_s"] == 90.0
    assert request("#!/bin/sh\n#PHOENIX --grace 30s\n", "--grace", "0s")["grace_s"] == 0.0
    assert request("#!/bin/sh\n#SBATCH --signal=B:USR1@120\n")["grace_s"] is None


def test_a_number_of_nodes_alone_is_a_task_a_node() -> None:
    body = request("#!/bin/sh\n", "-N", "3")
    assert (body["tasks"], body["nodes"]) == (3, 3)


def test_nothing_said_leaves_the_choice_to_the_cloud() -> None:
    body = request("#!/bin/sh\n")
    assert {
        key: body[key] for key in ("nodes", "memory_mb", "walltime_s", "on_reclaim", "array", "after")
    } == dict.fromkeys(("nodes", "memory_mb", "walltime_s", "on_reclaim", "array", "after"))
    assert (body["tasks"], body["priority"], body["held"]) == (1, 0, False)


def test_each_submission_has_a_request_id_of_its_own() -> None:
    assert request("#!/bin/sh\n")["request"] != request("#!/bin/sh\n")["request"]
    assert request("#!/bin/sh\n", "--request", "mine")["request"] == "mine"


def test_inputs_are_sent_under_their_name(tmp_path: Path) -> None:
    file = tmp_path / "data.txt"
    file.write_bytes(b"\x00\x01")
    body = request("#!/bin/sh\n", "--input", str(file), "--input", f"other={file}")
    assert body["inputs"] == [{"name": "data.txt", "data": "AAE="}, {"name": "other", "data": "AAE="}]


def test_a_missing_input_is_an_error_of_usage(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="No such file") as caught:
        request("#!/bin/sh\n", "--input", str(tmp_path / "none"))
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("words", "rest", "json", "department"),
    [
        (["--json", "-n", "4"], ["-n", "4"], True, None),
        (["--department", "hpc", "x"], ["x"], False, "hpc"),
        (["x", "--json"], ["x", "--json"], False, None),  # behind an argument of the script it is the script's
        (["--", "--json"], ["--json"], False, None),
        (["--json", "--", "--json"], ["--json"], True, None),
    ],
)
def test_what_follows_the_script_is_the_scripts(
    words: list[str], rest: list[str], json: bool, department: str | None
) -> None:
    parser = make("submit")
    submit.add_arguments(parser)
    args = parser.parse_args(submit.prepared(["-n", "1", "job.sh", *words]))
    submit.trailing(args)
    assert (args.arguments, args.json, args.department) == (rest, json, department)


def test_a_quality_of_service_is_asked_for_as_in_slurm() -> None:
    assert request("#!/bin/sh\n#SBATCH --qos=high\n")["quality"] == "high"
    assert request("#!/bin/sh\n#SBATCH --constraint='gpu&rack=r1'\n")["constraint"] == "gpu&rack=r1"
    assert request("#!/bin/sh\n#SBATCH -C gpu\n", "-C", "a|b")["constraint"] == "a|b"
    assert request("#!/bin/sh\n#SBATCH -q high\n", "--qos", "low")["quality"] == "low"
    assert request("#!/bin/sh\n")["quality"] == ""


@pytest.mark.parametrize(
    ("line", "argv", "gpus"),
    [
        ("--gpus=4", (), {"gpus": 4}),
        ("-G 4", ("-N", "2"), {"gpus": 4}),
        ("--gpus-per-node=2", (), {"gpus_per_node": 2}),
        ("--gpus-per-task=2", ("-n", "4"), {"gpus_per_task": 2}),
        ("--gres=gpu:2", (), {"gpus_per_node": 2}),
        ("--gres=gpu", (), {"gpus_per_node": 1}),
        ("--gres=gpu:0", (), {"gpus_per_node": 0}),
        ("-n 2", (), {}),
        ("--gres=gpu:2", ("--gpus", "4"), {"gpus": 4}),  # the command line takes the place of every way
        ("--gpus=4", ("--gres", "gpu:1"), {"gpus_per_node": 1}),
        ("--gpus-per-task=1", ("--gpus", "4"), {"gpus": 4}),
        ("--gpus=4", ("--gpus-per-task", "1"), {"gpus_per_task": 1}),
    ],
)
def test_gpus_in_all_on_each_node_or_for_each_task(line: str, argv: tuple[str, ...], gpus: dict[str, int]) -> None:
    body = request(f"#!/bin/sh\n#SBATCH {line}\n", *argv)
    assert {way: body[way] for way in GPUS if body[way] is not None} == gpus


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--gpus=a100:2", "ask for 2, and for hosts with a label: -C gpu=a100"),
        ("--gres=gpu:a100:2", "-C gpu=a100"),
        ("--gres=gpu:a100", "no types|whole number|number"),
        ("--gres=scratch:2", "the only resource is gpu, as in gpu:2"),
        ("--gres=gpu:1,scratch:2", "the only resource is gpu"),
        ("--gpus=2 --gres=gpu:1", "only one"),
        ("--gpus-per-task=2 --gres=gpu:1", "only one"),
        ("--gpus-per-task=2 --gpus=4", "only one"),
        ("--gpus-per-task=a100:2", "ask for 2, and for hosts with a label: -C gpu=a100"),
        ("--gpus=many", "many"),
    ],
)
def test_what_gpus_cannot_be_is_said(line: str, told: str) -> None:
    with pytest.raises(CliError, match=told):
        request(f"#!/bin/sh\n#SBATCH {line}\n")
