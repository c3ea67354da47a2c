"""Jobs and events of a cloud, by a client that is generated from its openapi.json (docs/howto/clients.md).

    python jobs.py URL TOKEN_FILE run COMMAND...            submit a held job, read why it waits, release it, wait for its end
    python jobs.py URL TOKEN_FILE follow LAST_FILE [KIND]   handle each event once, also over restarts; end behind one of KIND

The id of the last event that was handled is kept in LAST_FILE.
"""

import json
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from phoenix_cloud_client import AuthenticatedClient, models
from phoenix_cloud_client.api.events import get_events
from phoenix_cloud_client.api.jobs import get_job, release_job, submit_job
from phoenix_cloud_client.api.why import get_why

ANSWER_S = 30.0
AGAIN_S = 0.5
SILENCE_S = 60.0  # an empty line comes more often


class Refused(Exception):
    def __init__(self, problem: models.Problem) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")


def granted(answer: Any) -> Any:
    if isinstance(answer, models.Problem):
        raise Refused(answer)
    return answer


def submit(client: AuthenticatedClient, argv: list[str]) -> str:
    # A request that is repeated with the same id is granted once.
    body = models.JobSubmit(argv=argv, held=True, request=str(uuid.uuid4()))
    submitted: models.Submitted = granted(submit_job.sync(client=client, body=body))
    return submitted.job


def why(client: AuthenticatedClient, name: str) -> list[str]:
    explained: models.Explanation = granted(get_why.sync(name, client=client))
    return explained.sentences


def release(client: AuthenticatedClient, job: str) -> None:
    done: models.JobResults = granted(release_job.sync(job, client=client))
    for result in done.results:
        granted(result.error)


def ended(client: AuthenticatedClient, job: str) -> models.Job:
    while True:
        found: models.Job = granted(get_job.sync(job, client=client))
        if found.ended_at is not None:
            return found
        time.sleep(AGAIN_S)


def events(client: AuthenticatedClient, last: str) -> Iterator[models.Event]:
    """Events behind the one with this id, and those that come.  Several may have one position, so the last one's is asked for
    again.  The generator has no streams: the request is the one that it makes, the stream is httpx's."""
    position, index = map(int, last.split(".")) if last else (0, -1)
    while True:
        request = get_events._get_kwargs(after=max(0, position - 1), follow=True)
        try:
            with client.get_httpx_client().stream(**request, timeout=httpx.Timeout(ANSWER_S, read=SILENCE_S)) as answer:
                if answer.status_code != httpx.codes.OK:  # 410: some are not kept any more
                    raise Refused(models.Problem.from_dict(json.loads(answer.read())))
                for line in filter(None, answer.iter_lines()):  # an empty one: the connection lives
                    event = read(json.loads(line))
                    if event is not None and (event.position, event.index) > (position, index):
                        position, index = event.position, event.index
                        yield event
        except httpx.TransportError as error:
            print(f"again, as the connection broke: {error!r}", file=sys.stderr)
        time.sleep(AGAIN_S)


def read(event: dict[str, Any]) -> models.Event | None:
    """None: of a kind that is newer than this client, which readers ignore."""
    try:
        return models.Event.from_dict(event)
    except ValueError:
        return None


def run(client: AuthenticatedClient, *argv: str) -> int:
    job = submit(client, list(argv))
    for sentence in why(client, job):
        print(f"job {job}: {sentence}", file=sys.stderr)
    release(client, job)
    end = ended(client, job)
    print(f"job {job} is {end.state}", file=sys.stderr)
    return end.exit_code if isinstance(end.exit_code, int) else 1


def follow(client: AuthenticatedClient, file: str, kind: str = "") -> int:
    last = Path(file)
    for event in events(client, last.read_text() if last.exists() else ""):
        fact = event.fact
        code = f" exit code {fact.exit_}" if isinstance(fact, models.AttemptReported) else ""
        print(f"{event.id} {event.kind}{code}", flush=True)
        last.write_text(event.id)  # it is handled
        if event.kind == kind:
            break
    return 0


def main(url: str, token_file: str, verb: str, *words: str) -> int:
    token = Path(token_file).read_text().strip()
    with AuthenticatedClient(base_url=url, token=token, timeout=httpx.Timeout(ANSWER_S)) as client:
        return run(client, *words) if verb == "run" else follow(client, *words)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except Refused as error:
        print(error, file=sys.stderr)
        sys.exit(2)
