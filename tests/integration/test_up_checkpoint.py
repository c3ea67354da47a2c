"""A job counts, saves what it has, loses its host; the next attempt continues from the file: a whole cloud, no stand-ins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phoenix.local import stack_config
from tests.integration.up_cloud import Cloud, until

pytestmark = pytest.mark.timeout(180)
# The first attempt counts until it is stopped, the next ones AGAIN further.
AGAIN = 20
COUNTER = f"""#!/bin/sh
#SBATCH --signal=B:USR1@60
save() {{ echo "$n" > count; phoenix checkpoint --percent $((n % 100)) --progress "step $n" count || echo "refused $?"; }}
trap 'n=$((n+1)); save; echo "stopped at $n"; exit 99' USR1
n=$(cat count 2>/dev/null || echo 0)
echo "attempt $PHOENIX_ATTEMPT from $n, told ${{PHOENIX_CHECKPOINT-nothing}} of ${{PHOENIX_CHECKPOINT_ATTEMPT-none}}"
[ "$PHOENIX_ATTEMPT" = 1 ] && last=1000000 || last=$((n+{AGAIN}))
while [ "$n" -lt "$last" ]; do n=$((n+1)); [ "$n" = 5 ] && save; sleep 0.05; done
echo "counted to $n"
"""
GREEDY = """#!/bin/sh
echo 7 > ok; phoenix checkpoint --percent 7 ok
ln -s /etc/passwd link; head -c 3000 /dev/zero > big
for it in link ../token /etc/passwd big; do phoenix checkpoint --percent 9 $it; echo "$it $?"; done
curl -s -o /dev/null -w '%{http_code}\\n' -H "Authorization: Bearer $(cat $PHOENIX_TOKEN_FILE)" -d '{}' \\
    "$PHOENIX_URL/v1/guest/999/1/0/checkpoint"
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("checkpoint")
    limits = "[policy]\ngrace_s = 20\nkill_s = 25\n[limits]\ncheckpoint_max_bytes = 2000\ncheckpoint_interval_s = 0\n"
    (directory / "site.toml").write_text(f"{stack_config.DEFAULT.read_text()}\n{limits}")
    found = Cloud(directory / "data")
    found.ok("up", "--detach", "--hosts", "3", "--cores", "2", "--config", str(directory / "site.toml"))
    yield found
    found.close()


def checkpoint(cloud: Cloud, job: str, attempt: int) -> dict[str, Any] | None:
    attempts = cloud.json("show", job)["attempts"]
    return next((a["checkpoint"] for a in attempts if a["attempt"] == attempt), None)


def test_the_next_attempt_goes_on_from_the_file(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "count.sh").write_text(COUNTER)
    job = cloud.ok("submit", "--exclusive", str(tmp_path / "count.sh")).strip()
    until(lambda: checkpoint(cloud, job, 1), "it has saved nothing")
    assert "its checkpoint of" in cloud.ok("why", job)
    (host,) = cloud.json("show", job)["hosts"]
    cloud.ok("hosts", "drain", host, "--deadline", "0", "--reason", "a test")
    until(lambda: cloud.json("show", job)["state"] == "completed", "it does not continue")
    cloud.ok("hosts", "uncordon", host)
    last = cloud.json("show", job)["attempts"][-1]["attempt"]
    assert last >= 2
    output = cloud.ok("output", job)
    first = output.splitlines()[0]
    saved = int(first.split(" from ")[1].split(",")[0])
    assert first.startswith(f"attempt {last} from ")
    assert saved > 5  # not what it saved while it ran, but in its grace time
    assert first.endswith("told 1 of 1")
    assert output.splitlines()[-1] == f"counted to {saved + AGAIN}"
    shown = cloud.ok("show", job)
    assert "checkpoint" in shown
    assert "1 file" in shown


def test_what_may_not_be_saved_loses_nothing(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "greedy.sh").write_text(GREEDY)
    job = cloud.ok("submit", str(tmp_path / "greedy.sh")).strip()
    until(lambda: cloud.json("show", job)["state"] == "completed", "it does not end")
    lines = cloud.ok("output", job).splitlines()
    assert lines == ["safe: 1 file, 2 bytes", "link 2", "../token 2", "/etc/passwd 2", "big 1", "401"]
    said = checkpoint(cloud, job, 1)
    assert said is not None
    assert (said["percent"], said["files"]) == (7.0, 1)


def test_the_cloud_keeps_its_word_in_its_logs_too(cloud: Cloud, tmp_path: Path) -> None:
    """No token of a guest, and nothing of what was saved, is in a log."""
    script = "#!/bin/sh\necho unmistakable-content > it; phoenix checkpoint it; cat $PHOENIX_TOKEN_FILE\n"
    (tmp_path / "it.sh").write_text(script)
    job = cloud.ok("submit", str(tmp_path / "it.sh")).strip()
    until(lambda: cloud.json("show", job)["state"] == "completed", "it does not end")
    token = cloud.ok("output", job).splitlines()[-1]
    assert len(token) > 20
    for log in (path for path in cloud.data.rglob("*.log*") if path.is_file()):
        text = log.read_text(errors="replace")
        assert token not in text, log
        assert "unmistakable-content" not in text, log
