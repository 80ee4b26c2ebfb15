"""A recoverer as a process of its own: `python recoverer.py DESTINATION JOB_ID`; prints `ready`, waits for a line."""

from __future__ import annotations

import asyncio
import sys

import committer
from committer import CommitterConfig


async def main(destination: str, job_id: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    report = await committer.recover(destination, job_id, config=CommitterConfig())
    print("recovered", report.files_committed, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
