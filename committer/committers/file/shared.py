"""Recognises directories of an application attempt, which jobs of FileOutputCommitter share."""

from __future__ import annotations

from collections.abc import Collection

from committer.committers.file.layout import FileLayout
from committer.committers.file.taking import is_of_job
from committer.errors import RecordError, StoreError
from committer.layout import TEMPORARY, DirectoryName, JobLayout
from committer.paths import StorePath
from committer.spec import JobSpec
from committer.stages.state.own_records import read_setup
from committer.stores.base import Store
from committer.stores.helpers import children_of


async def holds_output_of_jobs(
    store: Store, destination: StorePath, directory_name: DirectoryName, jobs: Collection[DirectoryName]
) -> bool:
    """Returns whether a child of `_temporary` is an application attempt's and holds only output of `jobs`.

    No call for a name that is no number, or without other jobs; else two listings, and a call for each job.
    """
    name = directory_name.job_id
    if not name.isdecimal() or all(job.job_id.isdecimal() for job in jobs):
        return False
    directory = destination / TEMPORARY / name
    inside = [child.path.name for child in await children_of(store, directory)]
    inside += [child.path.name for child in await children_of(store, directory / TEMPORARY)]
    using = await jobs_that_use(store, destination, name, jobs)
    return bool(using) and all(one == TEMPORARY or any(is_of_job(layout, one) for layout in using) for one in inside)


async def jobs_that_use(
    store: Store, destination: StorePath, name: str, jobs: Collection[DirectoryName]
) -> list[FileLayout]:
    """Returns this engine's jobs whose tasks commit to an application attempt's directory: a call for each job."""
    found: list[FileLayout] = []
    if not name.isdecimal():
        return found
    for job in sorted(jobs):
        if job.job_id.isdecimal() or job.suffix:
            continue
        try:
            spec = (await read_setup(store, JobLayout(destination, job.job_id, setup=job.setup))).spec
        except (StoreError, RecordError):
            continue
        if _shares(spec) and str(spec.job_attempt) == name:
            found.append(FileLayout(destination, job.job_id, spec.job_attempt))
    return found


def _shares(spec: JobSpec) -> bool:
    return spec.committer == "file-v2" or (spec.committer == "file-v1" and spec.delivery == "listing")
