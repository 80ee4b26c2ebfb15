"""Jobs of Hadoop's FileOutputCommitter: no command ends one, as all of a destination share a directory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from committer.cli.session import Session
from committer.committers.opened_store import open_store
from committer.committers.registry import committer_for
from committer.documentation import page
from committer.errors import StoreError, UnsupportedError
from committer.layout import TEMPORARY
from committer.paths import StorePath
from committer.readable import count
from committer.stores.base import Store

_TASK: Final = re.compile(r"task_(\d+_\d+)_[a-z]_\d+")


def tasks_by_job(names: Iterable[str]) -> Counter[str]:
    """How many tasks of each job committed, by the names in a job attempt's directory."""
    return Counter(f"job_{found[1]}" for found in map(_TASK.fullmatch, names) if found)


def can_commit(store: Store) -> bool:
    """Whether Python can commit such a job there."""
    return all(getattr(store.capabilities, ability) for ability in committer_for("file-v1").needs)


async def refuse_classic(session: Session, uri: str, job_id: str) -> None:
    """Refuses a job of FileOutputCommitter, or the directory of all of them: two listings, and one a job attempt more.

    For a command that finds no job, and would only say so.

    Raises:
        UnsupportedError: It is one. The error says how Python commits it, where it can.
    """
    destination = StorePath.of(uri)
    store = await open_store(destination, session.storage, session.config)
    try:
        attempts = await _tasks_by_attempt(store, destination / TEMPORARY)
    except StoreError:
        return
    finally:
        await store.close()
    shared = next((path for path, tasks in attempts.items() if path.name == job_id and tasks), None)
    one, *others = sorted(attempts[shared]) if shared else [job_id]
    # A job attempt that follows another takes over its tasks.
    newest = next((path for path, tasks in attempts.items() if one in tasks), None)
    if newest is None:
        return
    if shared:
        more = f" and {len(others):,} more" if others else ""
        what = f"{job_id} is no job, but a directory that all jobs of Hadoop's FileOutputCommitter share"
        what = f"{what}, with the output of {one}{more}"
    else:
        committed = count(attempts[newest][one], "task")
        what = f"job {one} is one of Hadoop's FileOutputCommitter, of which {committed} committed"
    raise UnsupportedError(
        f"{what}; no command ends such a job",
        operation="command line",
        path=shared or newest,
        next_step=f"if its driver is dead, commit it in Python, N being the number of its tasks: "
        f"`{_in_python(session, uri, one, newest)}` ({page('recovery.md#a-job-that-hadoop-set-up')})"
        if can_commit(store)
        else "if its driver is dead, run the job again: on this store only Hadoop could commit it",
    )


async def _tasks_by_attempt(store: Store, temporary: StorePath) -> dict[StorePath, Counter[str]]:
    """The tasks that committed in each job attempt's directory, the newest first."""
    children = [child.path async for child in store.list(temporary) if child.is_directory]
    attempts = sorted((path for path in children if path.name.isdecimal()), key=lambda path: -int(path.name))
    return {path: tasks_by_job([child.path.name async for child in store.list(path)]) for path in attempts}


def _in_python(session: Session, uri: str, job_id: str, attempt: StorePath) -> str:
    storage = ", storage_options={...}" if session.storage else ""
    spec = f"committer.JobSpec.for_hadoop({uri!r}, {job_id!r}, {int(attempt.name)}, committer='file-v1')"
    return f"with committer.sync.attach_job({spec}{storage}) as job: job.commit(tasks=N)"
