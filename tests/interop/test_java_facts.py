"""What Java's committer does by itself: the ground the other tests stand on, kept true for new Hadoop releases."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from .hadoop import CLEANUP_SKIPPED, DELETE_TARGET_FILES, JOB_ATTEMPT, Hadoop, JavaError
from .trees import AWKWARD_NAMES, COLON_NAMES, contents, exists, is_sidecar, names_in, on_disk, put, without_sidecars


async def test_java_job_publishes_what_its_tasks_wrote(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    files = contents(*AWKWARD_NAMES)
    await job.setup()
    assert await names_in(job.attempt_directory) == {"manifests"}
    await job.run_task(0, files)
    counters = await job.commit()

    assert counters["committer_files_committed"] == len(files)
    assert counters["committer_bytes_committed"] == sum(map(len, files.values()))
    standing, _ = await on_disk(job.destination)
    assert without_sidecars(standing) == files
    # Sidecars travel with their files when Java renames them.
    assert sum(map(is_sidecar, standing)) == len(files)
    found = await hadoop.read_files(job.destination)
    del found["_SUCCESS"]
    assert found == files
    assert not await exists(job.destination / "_temporary")


async def test_mapreduce_lifecycle_answers(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    # True even for an attempt that was never set up; the commit then fails.
    assert await job.needs_task_commit(0)
    with pytest.raises(JavaError) as missing:
        await job.commit_task(0)
    assert missing.value.kind == "FileNotFoundException"
    assert not await job.is_commit_repeatable()
    assert not await job.is_recovery_supported()
    await job.run_task(0, contents("f"))
    with pytest.raises(JavaError, match="recover") as refused:
        await job.recover_task(0)
    assert refused.value.kind == "IOException"
    await job.commit()
    # Not repeatable indeed.
    with pytest.raises(JavaError) as again:
        await job.commit()
    assert again.value.kind == "FileNotFoundException"


async def test_task_commit_repeats_until_the_job_is_committed(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("f"))
    await job.commit_task(0)
    assert await job.needs_task_commit(0)
    await job.commit()
    with pytest.raises(JavaError) as late:
        await job.commit_task(0)
    assert late.value.kind == "FileNotFoundException"


async def test_java_task_brings_a_vanished_manifests_directory_back(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.setup_task(0)
    await asyncio.to_thread(shutil.rmtree, job.manifests)
    await job.commit_task(0)
    assert await exists(job.manifest(0))


async def test_java_task_brings_a_whole_cleaned_up_job_back(hadoop: Hadoop, tmp_path: Path) -> None:
    """Java's task setup makes all parents, so a task that starts after its job's end leaves directories behind."""
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.commit()
    assert not await exists(job.destination / "_temporary")
    await job.run_task(0, contents("late"))
    assert await exists(job.manifest(0))
    assert await on_disk(job.destination) == ({}, set())


async def test_java_cannot_commit_colons(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    work = await job.setup_task(0)
    await put(work / COLON_NAMES[0], b"x")
    with pytest.raises(JavaError, match="Relative path in absolute URI"):
        await job.commit_task(0)


async def test_abort_after_task_commit_leaves_the_manifest(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("f"))
    await job.abort_task(0)
    assert await exists(job.manifest(0))
    with pytest.raises(JavaError) as missing:
        await job.commit()
    assert missing.value.kind == "FileNotFoundException"


@pytest.mark.parametrize(
    ("told", "left"), [(False, {"p=1/f/f": b"new", "p=1/f/inner": b"old"}), (True, {"p=1/f": b"new"})]
)
async def test_java_moves_a_file_into_a_directory_at_its_target_unless_told_to_delete_it(
    hadoop: Hadoop, tmp_path: Path, told: bool, left: dict[str, bytes]
) -> None:
    job = hadoop.job(tmp_path / "dest", conf={DELETE_TARGET_FILES: told})
    await put(job.destination / "p=1" / "f" / "inner", b"old")
    await job.setup()
    await job.run_task(0, {"p=1/f": b"new"})
    await job.commit()
    standing, _ = await on_disk(job.destination)
    assert without_sidecars(standing) == left


async def test_layout_of_a_later_job_attempt(hadoop: Hadoop, tmp_path: Path) -> None:
    first = hadoop.job(tmp_path / "dest", conf={CLEANUP_SKIPPED: True})
    second = hadoop.job(tmp_path / "dest", conf={JOB_ATTEMPT: 1, CLEANUP_SKIPPED: True})
    await first.setup()
    await first.run_task(0, contents("first"))
    await second.setup()
    await second.run_task(1, contents("second"))
    await second.commit()
    assert second.attempt_directory.name == "01"
    assert without_sidecars((await on_disk(second.destination))[0]) == contents("second")
    assert await exists(first.manifest(0))


async def test_java_job_id_is_sparks_uuid_but_task_ids_are_mapreduces(hadoop: Hadoop, tmp_path: Path) -> None:
    uuid = "0cf5b3a4-3d3e-4a87-9b0e-5a1d4c2f7e10"
    job = hadoop.job(tmp_path / "dest", 7, uuid=uuid)
    await job.setup()
    await job.run_task(3, contents("f"), attempt=2)
    manifest = await hadoop.load_manifest(job.manifest(3))
    assert job.manifests == job.destination / "_temporary" / uuid / "00" / "manifests"
    assert manifest["jobId"] == uuid
    assert manifest["taskID"] == "task_202401010000_0007_m_000003"
    assert manifest["taskAttemptID"] == "attempt_202401010000_0007_m_000003_2"
    await job.commit()
    success = await hadoop.load_success(job.destination / "_SUCCESS")
    assert (success["jobId"], success["jobIdSource"]) == (uuid, "spark.sql.sources.writeJobUUID")


async def test_java_reads_nothing_but_manifests_beside_manifests(hadoop: Hadoop, tmp_path: Path) -> None:
    """Files that this engine keeps in a job's directory disturb no Java driver."""
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("f"))
    for name in ("setup", "intent-0123", "00/probe", "00/manifests/attempt_x-1a2b-manifest.json.tmp", "00/attempts/x"):
        await put(job.attempt_directory.parent / name, b"not Java's")
    await put(job.destination / "_temporary" / ".committing" / "a~b~c.append", b"not Java's")
    counters = await job.commit()
    assert counters["committer_files_committed"] == 1
    assert not await exists(job.destination / "_temporary")
