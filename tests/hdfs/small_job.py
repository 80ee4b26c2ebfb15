"""A job of three tasks, small enough for a real NameNode."""

from __future__ import annotations

import committer

FILES = {f"year={2000 + task}/part-{number:05}.csv": b"x" * number for task in range(3) for number in range(8)}


async def write_tasks(job: committer.Job) -> list[committer.TaskCommit]:
    """Runs the tasks; what they commit."""
    messages = []
    for number in range(3):
        async with job.task_attempt(task=number) as task:
            for name, data in FILES.items():
                if name.startswith(f"year={2000 + number}/"):
                    async with task.open(name) as file:
                        await file.write(data)
        messages.append(task.task_commit)
    return messages
