"""Task records of the staging committers on a NameNode, while their files go to a store like S3."""

from __future__ import annotations

from pathlib import Path

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from tests.hdfs.cluster import Cluster
from tests.places import StagingPlace
from tests.waiting_uploads import pending

FILES = {"p=1/a": b"1", "p=2/b": b"22"}
MORE = {"p=1/c": b"333"}


async def test_records_on_hdfs(cluster: Cluster, directory: StorePath, tmp_path: Path) -> None:
    place = StagingPlace("directory")
    config = CommitterConfig(
        pending_set_directory=str(directory), pending_set_user="ana", staging_directories=(str(tmp_path),)
    )

    def of(job: committer.Job, below: str = "") -> object:
        return cluster.path(f"{directory.path}/ana/{job.spec.unique_id}{below}")

    async with place.open_job(job_id="j", config=config) as job:
        records = of(job, "/staging-uploads/_temporary/0")
        await place.run_task(job, 0, MORE)
        await place.run_task(job, 0, FILES, attempt=1)
        await place.run_task(job, 1, {"late": b"x"})
        names = [str(one.getPath().getName()) for one in cluster.hdfs.listStatus(records)]
        assert names == ["task_j_m_000000", "task_j_m_000001"]
        assert str(cluster.hdfs.getFileStatus(records).getPermission()) == "rwxr-xr-x"
        await job.abort_task(1, 0)
        assert (await job.commit(tasks=1)).files_committed == 2
    assert place.files() == FILES
    assert (pending(place), place.temporary()) == ([], set())
    assert not cluster.hdfs.exists(of(job))

    left = await place.open_job(job_id="j", config=config)
    await place.run_task(left, 0, MORE)
    assert cluster.hdfs.exists(of(left))
    await left.close()
    await committer.cleanup(place.dest, job_id="j", config=config, storage_options=place.options)
    assert pending(place) == []
    assert not cluster.hdfs.exists(of(left))
