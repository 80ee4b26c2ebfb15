"""committer.sync in processes of its own: exit, fork, workers of a pool, a real Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import scripts
from tests.scripts import finish, visible

# Each test starts Python processes.
pytestmark = pytest.mark.xdist_group("processes")

PRELUDE = """\
import atexit, os, sys, threading
from committer import sync
from committer.errors import CommitterError, DestinationNotFoundError
from committer.stores.local import LocalStore
from committer.testing.faults import FaultyStore

ROOT = sys.argv[1]

def look(destination):
    try:
        return sync.list_jobs(destination)
    except DestinationNotFoundError:
        return []

def write(task, name):
    with task.open(name) as file:
        file.write(name.encode())
"""


def start(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    return scripts.start(tmp_path, PRELUDE, body)


def run(tmp_path: Path, body: str, *, code: int = 0) -> list[str]:
    return finish(start(tmp_path, body), code=code).split()


# --- Exit -------------------------------------------------------------------------------------------------------


def test_exit_after_use(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        with sync.open_job(ROOT) as job, job.task_attempt(0) as task:
            write(task, "a")
        """,
    )
    assert visible(tmp_path / "out") == ["a"]


@pytest.mark.parametrize("held", ["by names", "by a generator"])
def test_exit_with_everything_left_open(tmp_path: Path, held: str) -> None:
    """The exit frees open jobs, and decides none of them."""
    printed = run(
        tmp_path,
        f"""
        close = LocalStore.close

        async def loud(self):
            print("freed")
            await close(self)

        LocalStore.close = loud

        def steps():
            with sync.open_job(ROOT) as job, job.task_attempt(0) as task, task.open("a") as file:
                file.write(b"half")
                yield

        if {held == "by a generator"}:
            waiting = steps()
            next(waiting)
        else:
            job = sync.open_job(ROOT)
            own, other = job.task_attempt(0), sync.open_task(job.spec, task=1)
            files = [own.open("a"), other.open("b")]
            for file in files:
                file.write(b"half")
        """,
    )
    assert printed == ["freed"] * (1 if held == "by a generator" else 2)
    assert visible(tmp_path / "out") == []
    assert len(os.listdir(tmp_path / "out" / "_temporary")) == 1


def test_exit_while_a_daemon_thread_waits(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
        import asyncio
        inside = threading.Event()

        async def stay(call):
            inside.set()
            try:
                await asyncio.Event().wait()
            finally:
                print("cancelled")

        store = FaultyStore(LocalStore(), before_call=stay)
        call = lambda: sync.list_jobs(ROOT, storage_options={"store": store})
        threading.Thread(target=call, daemon=True).start()
        inside.wait()
        """,
    )
    assert printed == ["cancelled"]


def test_exit_while_a_call_does_not_end(tmp_path: Path) -> None:
    """A listener that never returns holds the loop; exit waits its seconds and goes."""
    printed = run(
        tmp_path,
        """
        import time
        import committer.flow.portal as portal
        portal.EXIT_BOUND_S = 0.2
        inside = threading.Event()

        def listen(event):
            inside.set()
            time.sleep(1000)

        call = lambda: sync.open_job(ROOT, listeners=[listen]).commit()
        threading.Thread(target=call, daemon=True).start()
        inside.wait()
        print("leaving")
        """,
    )
    assert printed == ["leaving"]


@pytest.mark.parametrize("used_before", [True, False])
def test_exit_handlers_come_too_late(tmp_path: Path, used_before: bool) -> None:
    printed = run(
        tmp_path,
        f"""
        def bye():
            try:
                sync.list_jobs(ROOT)
            except CommitterError as error:
                print("exiting" in error.message)
            if {used_before}:
                job.close()

        atexit.register(bye)
        if {used_before}:
            job = sync.open_job(ROOT)
            atexit.register(bye)
        """,
    )
    assert printed == (["True", "True"] if used_before else ["True"])


@pytest.mark.parametrize("used", ["before", "after"])
@pytest.mark.parametrize(
    "start", ["threading.Thread(target=work).start()", "concurrent.futures.ThreadPoolExecutor(1).submit(work)"]
)
def test_a_thread_that_outlives_the_main_thread_works_to_its_end(tmp_path: Path, start: str, used: str) -> None:
    printed = run(
        tmp_path,
        f"""
        import concurrent.futures.thread, time

        def work():
            # The main thread came to its end, and Python's own pools take no calls any more.
            while not concurrent.futures.thread._shutdown:
                time.sleep(0.01)
            with sync.open_job(ROOT) as job:
                for number in range(2):
                    with job.task_attempt(number) as task:
                        write(task, f"part-{{number}}")
            print(job.report.files_committed)

        if {used!r} == "before":
            look(ROOT)
        {start}
        """,
    )
    assert printed == ["2"]


def test_a_thread_that_outlives_the_main_thread_reaches_a_service(tmp_path: Path) -> None:
    """The name of a host is looked up in a thread of the loop's own pool."""
    printed = run(
        tmp_path,
        """
        def work():
            threading.main_thread().join()
            try:
                sync.list_jobs("s3://bucket/out", storage_options={
                    "endpoint_url": "http://localhost:1", "region": "us-east-1", "access_key_id": "a",
                    "secret_access_key": "b"})
            except CommitterError as error:
                print("exiting" in str(error), "localhost" in str(error))

        threading.Thread(target=work).start()
        """,
    )
    assert printed == ["False", "True"]


def test_sys_exit_inside_the_block_aborts(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        with sync.open_job(ROOT) as job:
            sys.exit(7)
        """,
        code=7,
    )
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert not (tmp_path / "out" / "_temporary").exists()


def test_a_loop_that_cannot_start(tmp_path: Path) -> None:
    """No file descriptors: the caller hears of it, and the next call tries again."""
    printed = run(
        tmp_path,
        """
        import resource
        # asyncio complains of its own half made loop when that is finalised.
        sys.unraisablehook = lambda error: None
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        import asyncio.unix_events, anyio._backends._asyncio
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            look("memory://space/out")
        except OSError as error:
            print(error.errno)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        print(look("memory://space/out"))
        """,
    )
    assert printed == ["24", "[]"]


# --- Fork -------------------------------------------------------------------------------------------------------


def test_a_forked_child_works_and_exits(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
        with sync.open_job(ROOT) as job:
            with job.task_attempt(0) as task:
                write(task, "parent")
            child = os.fork()
            if child == 0:
                with sync.open_task(job.spec, task=1) as task:
                    write(task, "child")
                # Leaves the parent's block, which must decide nothing.
                sys.exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    assert printed == ["3"]
    assert visible(tmp_path / "out") == ["child", "parent"]


def test_a_forked_child_that_does_nothing_exits(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
        job = sync.open_job(ROOT)
        task = job.task_attempt(0)
        file = task.open("a")
        file.write(b"half")
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            file.close()
            task.commit()
            job.commit()
        """,
    )
    assert printed == ["0"]
    assert visible(tmp_path / "out") == ["a"]


def test_a_forked_child_may_not_use_what_it_inherits(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
        with sync.open_job(ROOT) as job, job.task_attempt(0) as task, task.open("a") as file:
            child = os.fork()
            if child == 0:
                uses = [job.commit, job.abort, job.close, lambda: job.task_attempt(1), task.commit, task.abort]
                uses += [lambda: task.open("b"), task.work_path, lambda: (file.write(b"x"), file.flush())]
                for use in uses:
                    try:
                        use()
                    except CommitterError as error:
                        print("forked" in error.message, flush=True)
                sys.exit()
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            file.write(b"whole")
        """,
    )
    assert printed == ["True"] * 9 + ["0"]
    assert (tmp_path / "out" / "a").read_bytes() == b"whole"


def test_forks_while_other_threads_call(tmp_path: Path) -> None:
    """Locks that the parent's threads hold at that moment do not stop the child."""
    printed = run(
        tmp_path,
        """
        # Python itself cannot fork while a module is imported that the child will need.
        import committer.stores.memory

        over = threading.Event()

        def hammer():
            while not over.is_set():
                look("memory://space/out")

        threads = [threading.Thread(target=hammer) for _ in range(3)]
        for thread in threads:
            thread.start()
        codes = set()
        for number in range(10):
            child = os.fork()
            if child == 0:
                with sync.open_job(f"memory://space/{number}") as job, job.task_attempt(0) as task:
                    write(task, "a")
                os._exit(0 if job.report.files_committed == 1 else 1)
            codes.add(os.waitpid(child, 0)[1])
        over.set()
        for thread in threads:
            thread.join()
        print(codes)
        """,
    )
    assert printed == ["{0}"]


def test_a_grandchild(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
        for _ in range(2):
            look("memory://space/out")
            child = os.fork()
            if child:
                sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(len(look("memory://space/out")))
        sys.stdout.flush()
        sys.exit(5)
        """,
        code=5,
    )
    assert printed == ["0"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_each_do_task_attempts(tmp_path: Path, method: str) -> None:
    run(
        tmp_path,
        f"""
        import multiprocessing

        def work(spec, number):
            with sync.open_task(spec, task=number, attempt=1) as task:
                write(task, f"part-{{number}}")
            return task.task_commit

        if __name__ == "__main__":
            with sync.open_job(ROOT, delivery="message") as job:
                with multiprocessing.get_context({method!r}).Pool(2) as pool:
                    messages = pool.starmap(work, [(job.spec, number) for number in range(4)])
                    pool.close()
                    pool.join()
                assert job.commit(messages, tasks=4).files_committed == 4
        """,
    )
    assert visible(tmp_path / "out") == [f"part-{number}" for number in range(4)]


# --- Ctrl-C -----------------------------------------------------------------------------------------------------


def test_ctrl_c_in_a_commit(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        """
        import asyncio

        async def wait_in_rename(call):
            if call.operation == "rename_file":
                print("renaming", flush=True)
                await asyncio.Event().wait()

        import logging
        logging.getLogger("committer").addHandler(logging.NullHandler())
        store = FaultyStore(LocalStore())
        try:
            with sync.open_job(ROOT, job_id="half", storage_options={"store": store}) as job:
                with job.task_attempt(0) as task:
                    write(task, "a")
                store.before_call = wait_in_rename
        except KeyboardInterrupt:
            print("interrupted", *(info.state for info in sync.list_jobs(ROOT)))
            sync.recover(ROOT, "half")
        """,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "renaming\n"
    process.send_signal(signal.SIGINT)
    assert finish(process) == "interrupted committing\n"
    assert visible(tmp_path / "out") == ["a"]


def test_a_signal_handler_aborts_the_attempt_whose_call_it_interrupts(tmp_path: Path) -> None:
    """The lock of the interrupted call is not waited for."""
    out = run(
        tmp_path,
        """
        import signal

        class Stop(Exception):
            pass

        def stop(*_):
            task.abort()
            raise Stop

        signal.signal(signal.SIGALRM, stop)
        job = sync.open_job(ROOT)
        task = job.task_attempt(task=0)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            number = 0
            while True:
                number += 1
                task.work_path(f"x{number}")
        except Stop:
            print("stopped")
        job.abort()
        job.close()
        """,
    )
    assert out == ["stopped"]
