"""Twin of Hadoop's TestCreateOutputDirectoriesStage: only what is missing is made, leaves only, each once.

Where this engine differs: statuses that tasks wrote are not trusted, the driver looks once itself; files in the way are
moved aside before directories are made, and only with `existing_target="replace"`.
"""

from __future__ import annotations

from committer import CommitterConfig
from tests.places import MemoryPlace


def made(place: MemoryPlace) -> list[str]:
    """Directories that a commit asked for below the destination."""
    return sorted(
        call.path.path.removeprefix("/table/")
        for call in place.store.calls
        if call.operation == "make_directory" and "_temporary" not in call.path.path
    )


async def commit(place: MemoryPlace, *tasks: dict[str, bytes], config: CommitterConfig | None = None):
    job = await place.open_job(config=config)
    for number, files in enumerate(tasks):
        await place.run_task(job, number, files)
    place.store.calls.clear()
    return await job.commit()


async def test_new_directories_given_twice(memory: MemoryPlace) -> None:
    report = await commit(
        memory, {f"d{number}/part-0": b"x" for number in range(8)}, {f"d{number}/part-1": b"x" for number in range(8)}
    )
    assert made(memory) == [f"d{number}" for number in range(8)]
    assert report.directories_created == 8
    assert report.statistics.counters["op_create_directories"] == 1


async def test_rerun_over_existing_directories_makes_none(memory: MemoryPlace) -> None:
    await commit(memory, {f"d{number}/part-0": b"x" for number in range(8)})
    report = await commit(memory, {f"d{number}/part-1": b"x" for number in range(8)})
    assert made(memory) == []
    assert report.directories_created == 0


async def test_only_leaves_are_asked_for(memory: MemoryPlace) -> None:
    memory.write("here/old", b"old")
    report = await commit(memory, {"a/b/c/part": b"x", "a/part": b"x", "a/b2/part": b"x", "here/new/part": b"x"})
    assert made(memory) == ["a/b/c", "a/b2", "here/new"]
    assert report.directories_created == 5


async def test_dirty_tree_with_file_parent_and_file_leaf(memory: MemoryPlace) -> None:
    memory.write("parent", b"a file")
    memory.write("top/leaf", b"a file")
    memory.write("top/there/old", b"old")
    report = await commit(
        memory,
        {"parent/child/part": b"x", "top/leaf/part": b"x", "top/there/part": b"x"},
        config=CommitterConfig(existing_target="replace"),
    )
    assert made(memory) == ["parent/child", "top/leaf"]
    assert report.directories_created == 3
    assert sorted(memory.files()) == ["parent/child/part", "top/leaf/part", "top/there/old", "top/there/part"]


async def test_no_directories_where_they_are_not_real() -> None:
    place = MemoryPlace("gcs")
    await commit(place, {f"d{number}/part-0": b"x" for number in range(8)})
    assert made(place) == []
    assert len(place.files()) == 8


async def test_directory_that_vanishes_before_its_file_is_published(memory: MemoryPlace) -> None:
    job = await memory.open_job()
    await memory.run_task(job, 0, {"d/part-0": b"x"})

    async def vanish(call) -> None:
        if (
            call.operation == "rename_file"
            and str(call.destination).endswith("d/part-0")
            and "d" in memory.directories()
        ):
            memory.remove("d")
            memory.store.before_call = None

    memory.store.before_call = vanish
    report = await job.commit()
    assert report.files_committed == 1
    assert memory.files() == {"d/part-0": b"x"}
