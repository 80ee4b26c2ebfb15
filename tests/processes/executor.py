"""An executor as a process of its own: `python executor.py SPEC TASK ATTEMPT HOW`, told `go` on its standard input.

HOW: `write` writes without end after it said `writing`; `commit` writes, says `written`, waits for `go`, then commits.
What the commit raises is printed as `error TYPE`.
"""

from __future__ import annotations

import asyncio
import sys

import committer
from committer import CommitterError, JobSpec


async def main(spec: JobSpec, task: int, attempt: int, how: str) -> None:
    writer = await committer.open_task(spec, task=task, attempt=attempt)
    file = writer.open(f"p=1/part-{task}")
    await file.write(b"attempt %d" % attempt)
    if how == "write":
        print("writing", flush=True)
        while True:
            await file.write(b"x" * 100_000)
    await file.close()
    async with writer.open(f"p=2/only-attempt-{attempt}") as other:
        await other.write(b"x")
    print("written", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        message = await writer.commit()
    except CommitterError as error:
        print("error", type(error).__name__, error.outcome, flush=True)
    else:
        print("committed", message.files, flush=True)


if __name__ == "__main__":
    asyncio.run(main(JobSpec.decode(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
