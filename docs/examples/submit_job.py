"""Submit a job over NATS, with nats-py alone.

    python submit_job.py NATS_URL DEPARTMENT USER NKEY_FILE COMMAND [ARGUMENT ...]

Prints the job's id.  Ends with 1 if the cloud refuses the job, with 4 if this key may not ask.
"""

import asyncio
import sys
import uuid

import nats
import orjson


async def main(url: str, department: str, user: str, nkey: str, *command: str) -> int:
    denied = asyncio.get_running_loop().create_future()

    async def on_error(error: Exception) -> None:  # a denial arrives here, not as an answer
        if "permissions violation" in str(error).lower() and not denied.done():
            denied.set_result(error)

    inbox = f"_INBOX_{department}.{user}"  # answers arrive nowhere else
    nc = await nats.connect(url, nkeys_seed=nkey, inbox_prefix=inbox, error_cb=on_error)
    job = {
        "argv": command,
        "walltime_s": 600,
        "request": str(uuid.uuid4()),
    }  # a repeated request with this id adds no job
    subject = f"phoenix.request.{department}.{user}.job.submit"
    call = asyncio.ensure_future(nc.request(subject, orjson.dumps(job), timeout=5))
    await asyncio.wait({call, denied}, return_when=asyncio.FIRST_COMPLETED)
    if denied.done():
        call.cancel()
        print(f"not permitted: {denied.result()}", file=sys.stderr)
        return 4
    answer = orjson.loads(call.result().data)
    await nc.close()
    if answer.get("type", "").startswith("urn:phoenix:problem:"):
        print(answer["detail"], file=sys.stderr)
        return 1
    print(answer["job"])
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
