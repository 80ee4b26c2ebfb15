"""Workers that publish for a driver: each chunk in a process of its own, some twice, some late, some never heard of."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable

import msgspec

import committer
from committer.api.publishing import PublishAccount, PublishChunk
from committer_testing.simulate.process import Process
from committer_testing.simulate.run import Run, is_crash
from committer_testing.simulate.scenario import JobPlan

_PATIENCE_S = 5.0
_LATE_S = 12.0
_MISCHIEF = 0.2


class WorkerPool:
    """The pool of one try to commit a job. What becomes of a chunk is drawn from the seed, its job and its number.

    Args:
        run: The run.
        plan: The job.
        name: Of the try, in the history.
    """

    def __init__(self, run: Run, plan: JobPlan, name: str) -> None:
        self._run = run
        self._plan = plan
        self._name = name
        self._before: PublishAccount | None = None

    def workers(self) -> int:
        """As many as were drawn."""
        return self._plan.workers

    async def publish(self, chunk: PublishChunk) -> PublishAccount:
        """Has it published once, twice, or late as well; may lose the account, or hand over that of another chunk."""
        name = f"{self._name}.chunk{chunk.number}"
        draw = random.Random(f"{self._run.scenario.seed} {name}")
        late, twice, lost, mistaken = (draw.random() < _MISCHIEF for _ in range(4))
        if late:
            # A zombie: it begins when the job may be over, or another one may have its id.
            self._run.start(self._zombie(f"{name}.late", chunk, draw))
        first = asyncio.ensure_future(self._work(f"{name}.a", chunk, draw))
        done, _ = await asyncio.wait({first}, timeout=0.0 if twice else _PATIENCE_S)
        account: PublishAccount | None
        if done:
            account = first.result()
        else:
            # It is slow, or gone: another worker gets the same chunk, and the first one is not waited for.
            self._run.start(self._end(first))
            account = await self._work(f"{name}.b", chunk, draw)
        if account is None or lost:
            raise OSError("the worker is gone, or its account")
        before, self._before = self._before, account
        return before if mistaken and before is not None else account

    async def _zombie(self, name: str, chunk: PublishChunk, draw: random.Random) -> None:
        await asyncio.sleep(draw.random() * _LATE_S)
        await self._work(name, chunk, draw)

    async def _end(self, work: Awaitable[object]) -> None:
        await work

    async def _work(self, name: str, chunk: PublishChunk, draw: random.Random) -> PublishAccount | None:
        """What one worker does; None where its process dies."""
        process = Process(name, self._run, job_id=self._plan.id, setup=self._plan.job_id)
        if draw.random() < _MISCHIEF:
            process.freezes_at, process.freezes_s = 1 + int(draw.random() * 6), 0.5 + draw.random() * _LATE_S
        if draw.random() < _MISCHIEF:
            process.partitioned_until = asyncio.get_running_loop().time() + draw.random() * 3.0
        copy = msgspec.structs.replace(chunk)
        try:
            account = await committer.publish_chunk(copy, {"store": process})
        except BaseException as error:
            if not is_crash(error):
                raise
            self._run.note(name, "dies")
            return None
        self._run.note(name, f"accounts for {account.files} of {chunk.files} files {account.problem}".rstrip())
        return account
