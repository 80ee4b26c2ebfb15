"""Jobs of Hadoop's FileOutputCommitter: no command ends one, as all of a destination share a directory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from committer.cli.session import Session
from committer.committers.opened_store import open_store
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


async def refuse_classic(session: Session, uri: str, job_id: str) -> None:
    """Refuses a job of FileOutputCommitter, or the directory of all of them: two listings, and one a job attempt more.

    For a command that finds no job, and would only say so.

    Raises:
        UnsupportedError: It is one. The error says how Python commits it.
    """
    destination = StorePath.of(uri)
    store = await open_store(destination, session.storage, session.config)
    try:
        found = await _find(store, destination / TEMPORARY, job_id)
    except StoreError:
        return
    finally:
        await store.close()
    if found is None:
        return
    attempt, tasks = found
    if attempt.name == job_id:
        job_id, *others = sorted(tasks)
        more = f" and {len(others):,} more" if others else ""
        what = f"{attempt.name} is no job, but a directory that all jobs of Hadoop's FileOutputCommitter share"
        what = f"{what}, with the output of {job_id}{more}"
    else:
        what = f"job {job_id} is one of Hadoop's FileOutputCommitter, of which {count(tasks[job_id], 'task')} committed"
    raise UnsupportedError(
        f"{what}; no command ends such a job",
        operation="command line",
        path=attempt,
        next_step=f"if its driver is dead, commit it in Python, N being the number of its tasks: "
        f"`{_in_python(session, uri, job_id, attempt)}` ({page('recovery.md#a-job-that-hadoop-set-up')})",
    )


async def _find(store: Store, temporary: StorePath, job_id: str) -> tuple[StorePath, Counter[str]] | None:
    """The newest job attempt's directory in which tasks of a job committed, or the one of this name, and its tasks."""
    attempts = [child.path async for child in store.list(temporary) if child.is_directory]
    for attempt in sorted((path for path in attempts if path.name.isdecimal()), key=lambda path: -int(path.name)):
        tasks = tasks_by_job([child.path.name async for child in store.list(attempt)])
        if job_id in tasks or (tasks and attempt.name == job_id):
            return attempt, tasks
    return None


def _in_python(session: Session, uri: str, job_id: str, attempt: StorePath) -> str:
    storage = ", storage_options={...}" if session.storage else ""
    spec = f"committer.JobSpec.for_hadoop({uri!r}, {job_id!r}, {int(attempt.name)}, committer='file-v1')"
    return f"with committer.sync.attach_job({spec}{storage}) as job: job.commit(tasks=N)"
