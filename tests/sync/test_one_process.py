"""What a process opened belongs to it: no other one writes through it, gets a copy of it, or ends it by leaving."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import committer
from committer import sync
from committer.errors import JobStateError, TaskError
from tests import scripts
from tests.scripts import finish, visible

# Each test starts Python processes.
pytestmark = pytest.mark.xdist_group("processes")

COPIES: list[Callable[[object], object]] = [pickle.dumps, copy.copy, copy.deepcopy]

PRELUDE = """\
import asyncio, multiprocessing, os, sys, threading
from concurrent.futures import ProcessPoolExecutor
import committer
from committer.errors import CommitterError

ROOT = sys.argv[1]

def committed(report):
    print(report.files_committed, *sorted(os.listdir(ROOT)))

def ended(child):
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

def on_a_loop(function):
    # A forked child has no loop in another thread than the one that forked.
    thread = threading.Thread(target=lambda: asyncio.run(function()))
    thread.start()
    thread.join()
"""


def run(tmp_path: Path, body: str) -> list[str]:
    return finish(scripts.start(tmp_path, PRELUDE, body)).splitlines()


# -- copies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_copy", COPIES, ids=lambda function: function.__name__)
async def test_what_a_job_opens_is_not_copied(tmp_path: Path, make_copy: Callable[[object], object]) -> None:
    async with committer.open_job(tmp_path) as job, job.task_attempt(task=0) as task:
        async with task.open("a") as file, task.open_blocking("b") as blocking:
            for thing, said in [(task, "task 0 attempt 0"), (file, "the file a"), (blocking, "the file b")]:
                with pytest.raises(TaskError, match=rf"^{said} cannot be pickled or copied") as caught:
                    make_copy(thing)
                assert "job.spec" in caught.value.next_step
                assert "committer.open_task(" in caught.value.next_step
            with pytest.raises(JobStateError, match=rf"^job {job.job_id} cannot be pickled or copied") as refused:
                make_copy(job)
            assert "committer.open_task(" in refused.value.next_step
            assert "committer.attach_job(" in refused.value.next_step
    assert visible(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("make_copy", COPIES, ids=lambda function: function.__name__)
def test_what_a_blocking_job_opens_is_not_copied(tmp_path: Path, make_copy: Callable[[object], object]) -> None:
    with sync.open_job(tmp_path) as job, job.task_attempt(task=0) as task, task.open("a") as file:
        for thing, kind in [(job, JobStateError), (task, TaskError), (file, TaskError)]:
            with pytest.raises(kind, match="cannot be pickled or copied") as caught:
                make_copy(thing)
            assert "committer.sync.open_task(" in caught.value.next_step
    assert visible(tmp_path) == ["a"]


# -- pools ---------------------------------------------------------------------------------------------------------

IN_A_POOL = """
def write(task, name):
    async def attempt():
        async with task.open(name) as file:
            await file.write(b"rows")
    asyncio.run(attempt())

def take_part(job, number):
    async def attempt():
        async with job.task_attempt(task=number) as task, task.open(f"part-{number}") as file:
            await file.write(b"rows")
    asyncio.run(attempt())

def as_advised(spec, number):
    async def attempt():
        async with committer.open_task(spec, task=number) as task, task.open(f"part-{number}") as file:
            await file.write(b"rows")
    asyncio.run(attempt())
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_are_refused_and_take_part_by_the_spec(tmp_path: Path, method: str) -> None:
    printed = run(
        tmp_path,
        IN_A_POOL
        + f"""
async def main():
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context({method!r})) as pool:
        async with committer.open_job(ROOT) as job:
            async with job.task_attempt(task=0) as task:
                for function, what, argument in [(write, task, "a"), (take_part, job, 1)]:
                    try:
                        await loop.run_in_executor(pool, function, what, argument)
                    except CommitterError as error:
                        print(type(error).__name__, "cannot be pickled" in error.message)
                async with task.open("part-0") as file:
                    await file.write(b"rows")
            await loop.run_in_executor(pool, as_advised, job.spec, 1)
            committed(await job.commit(tasks=2))

if __name__ == "__main__":
    asyncio.run(main())
""",
    )
    assert printed == ["TaskError True", "JobStateError True", "2 _SUCCESS part-0 part-1"]


def test_a_driver_that_leaves_the_refusal_alone_commits_nothing(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        IN_A_POOL
        + """
async def main():
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        async with committer.open_job(ROOT) as job, job.task_attempt(task=0) as task:
            await loop.run_in_executor(pool, write, task, "a")

if __name__ == "__main__":
    try:
        asyncio.run(main())
    except CommitterError as error:
        print(error.outcome, os.listdir(ROOT))
""",
    )
    assert printed == ["unchanged []"]


# -- forked children -----------------------------------------------------------------------------------------------


def test_a_forked_child_may_not_use_what_it_inherits(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
        async def main():
            async with committer.open_job(ROOT) as job:
                async with job.task_attempt(task=0) as task:
                    file, blocking = task.open("a"), task.open_blocking("b")
                    await file.write(b"whole")
                    await asyncio.to_thread(blocking.write, b"whole")
                    child = os.fork()
                    if child == 0:
                        on_a_loop(lambda: use(job, task, file, blocking))
                        os._exit(3)
                    ended(child)
                    await file.close()
                    await asyncio.to_thread(blocking.close)
                committed(await job.commit(tasks=1))

        async def use(job, task, file, blocking):
            uses = [job.commit, job.abort, job.plan, job.close, lambda: job.abort_task(0, 0)]
            uses += [lambda: job.recover_task(0, 0), lambda: job.task_attempt(task=1)]
            uses += [task.commit, task.abort, task.check_job, lambda: file.write(b"x"), file.close, file.abort]
            blocks = [lambda: task.open("c"), lambda: task.open_blocking("c"), task.work_path, lambda: task.count("n")]
            blocks += [lambda: blocking.write(b"x"), blocking.flush, blocking.close, lambda: task.open_blocking("d")]
            for use in uses:
                await refused(use)
            for use in blocks:
                await refused(lambda: asyncio.to_thread(use))

        async def refused(use):
            try:
                await use()
            except CommitterError as error:
                told = "belongs to its parent" in error.message and "committer.open_task(" in error.next_step
                print(told, error.outcome, flush=True)

        asyncio.run(main())
        """,
    )
    assert printed == ["True unchanged"] * 21 + ["child 3", "2 _SUCCESS a b"]
    assert (tmp_path / "out" / "a").read_bytes() == b"whole"
    assert (tmp_path / "out" / "b").read_bytes() == b"whole"


@pytest.mark.parametrize("leave", ["pass", "raise ValueError", "sys.exit(3)"])
def test_a_child_that_leaves_inherited_blocks_ends_nothing(tmp_path: Path, leave: str) -> None:
    printed = run(
        tmp_path,
        f"""
        # The child must not touch the loop, whose selector is its parent's too: it ends before it would go on.
        async def main():
            try:
                async with committer.open_job(ROOT) as job:
                    async with job.task_attempt(task=0) as task:
                        async with task.open("a") as file, task.open_blocking("b") as blocking:
                            await file.write(b"wh")
                            await asyncio.to_thread(blocking.write, b"wh")
                            child = os.fork()
                            if child == 0:
                                {leave}
                            else:
                                ended(child)
                                await file.write(b"ole")
                                await asyncio.to_thread(blocking.write, b"ole")
                    if child:
                        committed(await job.commit(tasks=1))
            except (ValueError, SystemExit):
                os._exit(4)
            if child == 0:
                os._exit(4)

        asyncio.run(main())
        """,
    )
    assert printed == ["child 4", "2 _SUCCESS a b"]
    assert (tmp_path / "out" / "a").read_bytes() == b"whole"
    assert (tmp_path / "out" / "b").read_bytes() == b"whole"


def test_a_process_that_forks_itself_takes_part_by_the_spec(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
        async def child_attempt(spec):
            async with committer.open_task(spec, task=1) as task, task.open("b") as file:
                await file.write(b"rows")

        async def main():
            async with committer.open_job(ROOT) as job:
                async with job.task_attempt(task=0) as task, task.open("a") as file:
                    await file.write(b"rows")
                    child = os.fork()
                    if child == 0:
                        on_a_loop(lambda: child_attempt(job.spec))
                        os._exit(0)
                    ended(child)
                committed(await job.commit(tasks=2))

        asyncio.run(main())
        """,
    )
    assert printed == ["child 0", "2 _SUCCESS a b"]
