"""A driver as a process of its own: `python many.py DESTINATION JOB_ID`. Commits one job; prints the file count."""

from __future__ import annotations

import asyncio
import sys

import committer


async def main(destination: str, job_id: str) -> None:
    async with committer.open_job(destination, job_id=job_id) as job:
        for task in range(4):
            async with job.task_attempt(task) as attempt:
                for number in range(10):
                    async with attempt.open(f"p={number % 5}/{job_id}-{task}-{number}") as file:
                        await file.write(job_id.encode())
        print("ready", flush=True)
        sys.stdin.readline()
        report = await job.commit(tasks=4)
    print(report.files_committed, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
