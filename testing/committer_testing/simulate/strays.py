"""Task attempts that go on writing after they committed, by the paths of their own directories."""

from __future__ import annotations

import asyncio
import random

from committer.errors import CommitterError
from committer.paths import StorePath
from committer_testing.simulate.process import Process
from committer_testing.simulate.run import Run

_MOST = 12
_APART_S = 0.25


async def go_on_writing(run: Run, name: str, job_id: str, setup: str, directories: list[StorePath]) -> None:
    """Writes files that no record names, one after the other, in a process of its own.

    Nothing of it may ever be visible, whatever becomes of the directories meanwhile.

    Args:
        run: The run.
        name: The name of the process in the history.
        job_id: The job's id.
        setup: The job of the run.
        directories: Where the attempt wrote files.
    """
    process = Process(name, run, job_id=job_id, setup=setup)
    draw = random.Random(f"{run.scenario.seed} {name}")
    for number in range(1 + int(draw.random() * _MOST)):
        await asyncio.sleep(draw.random() * _APART_S)
        try:
            writer = await process.open_writer(draw.choice(directories) / f"stray-{number}.csv")
            await writer.write(b"of no attempt that may win\n")
            await writer.close()
        except CommitterError:
            continue
