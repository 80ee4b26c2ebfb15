"""A destination whose name holds what URIs escape is one and the same to every function that takes one."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import committer
from committer import CommitterConfig, JobSpec, StorePath
from committer.cli import main
from committer.paths import Destination
from committer.stores.memory import MemorySpace, MemoryStore
from tests.places import write_file

NAMES = ["a b", "a%20b", "100%", "x#y?z=1&ü名+~", "a:b [x]{y}|'q'\t"]

Form = Callable[[Path], Destination]
FORMS: dict[str, Form] = {
    "text": str,
    "path": Path,
    "store path": StorePath.of,
    "file URI": lambda path: f"file:{path}",
    "file URI, three slashes": lambda path: f"file://{path}",
    "text of a store path": lambda path: str(StorePath.of(path)),
    "text in a report": lambda path: str(StorePath.from_uri(StorePath.of(path).uri)),
}

NAMED = pytest.mark.parametrize("name", NAMES)
FORMED = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(params=NAMES)
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory that nothing but it may exist beside."""
    return tmp_path / "beside" / str(request.param)


def beside(there: Path) -> list[str]:
    return os.listdir(there.parent)


async def _open(dest: Destination, job_id: str) -> JobSpec:
    job = await committer.open_job(dest, job_id=job_id)
    spec = job.spec
    await job.close()
    async with committer.open_task(pickle.loads(pickle.dumps(spec)), task=0) as task:
        await write_file(task, f"{job_id}/part", b"x")
    return msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec)


@FORMED
async def test_functions_with_await(there: Path, form: str) -> None:
    dest = FORMS[form](there)
    for job_id in ("by-spec", "by-id", "recovered", "aborted"):
        spec = await _open(dest, job_id)
        assert spec.layout.destination == StorePath.of(there)
        if job_id == "by-spec":
            async with committer.attach_job(spec) as job:
                report = await job.commit(tasks=1)
            assert [StorePath.from_uri(name) for name in report.filenames] == [StorePath.of(there / "by-spec/part")]
        elif job_id == "by-id":
            async with committer.attach_job(dest, job_id=job_id) as job:
                await job.commit(tasks=1)
        elif job_id == "recovered":
            assert (await committer.recover(dest, job_id, force=True)).files_committed == 1
            assert (await committer.recover(dest, job_id)).files_committed == 1
        else:
            assert [info.job_id for info in await committer.list_jobs(dest)] == [job_id]
            assert (await committer.cleanup(dest, job_id=job_id)).removed == [job_id]
    assert (await committer.validate(dest)).ok
    marker = FORMS[form](there / "_SUCCESS")
    assert (await committer.load_record(marker)).jobId == "recovered"  # type: ignore[union-attr]
    assert JobSpec.for_hadoop(dest, "job_1_0001").layout.destination == StorePath.of(there)
    assert sorted(os.listdir(there)) == ["_SUCCESS", "by-id", "by-spec", "recovered"]
    assert beside(there) == [there.name]


@pytest.mark.parametrize("form", [form for form, of in FORMS.items() if isinstance(of(Path("/x")), str)])
def test_commands(there: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cyclopts")
    dest = str(FORMS[form](there))

    def run(*words: str) -> dict[str, object]:
        capsys.readouterr()
        assert main([*words, "--output", "json"]) == 0, words
        return msgspec.json.decode(capsys.readouterr().out)

    for job_id in ("committed", "recovered", "aborted", "cleaned"):
        asyncio.run(_open(dest, job_id))
    shown = run("jobs", dest)
    assert len(shown["jobs"]) == 4  # type: ignore[arg-type]
    # What is shown can be used: the same jobs.
    assert run("jobs", str(shown["destination"])) == run("jobs", str(StorePath.of(there)))
    for name in ("explain", "doctor"):
        found = run(name, dest)["destination"]
        assert StorePath.of(str(found)) == StorePath.of(there)
    run("plan", dest, "committed")
    run("commit", dest, "committed", "--yes")
    run("recover", dest, "committed", "--yes")
    run("recover", dest, "recovered", "--force", "--yes")
    run("abort", dest, "aborted", "--yes")
    run("cleanup", dest, "--job", "cleaned", "--yes")
    run("validate", dest)
    run("inspect", str(FORMS[form](there / "_SUCCESS")))
    assert sorted(os.listdir(there)) == ["_SUCCESS", "committed", "recovered"]
    assert beside(there) == [there.name]


@NAMED
@pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])
async def test_stores_that_are_no_disk(name: str, profile: str) -> None:
    space: MemorySpace = MemoryStore.space(f"odd-{profile}-{NAMES.index(name)}", profile)
    options = {"store": space.store()}
    place = StorePath("memory", space.name, f"/t/{name}")
    for number, dest in enumerate([place, str(place)]):
        job = await committer.open_job(dest, job_id=f"j{number}", storage_options=options)
        async with committer.open_task(job.spec, task=0, storage_options=options) as task:
            await write_file(task, f"part-{number}", b"x")
        await job.close()
        async with committer.attach_job(dest, job_id=f"j{number}", storage_options=options) as job:
            await job.commit(tasks=1)
        assert (await committer.recover(dest, f"j{number}", storage_options=options)).files_committed == 1
        assert (await committer.validate(dest, storage_options=options)).ok
        if profile == "s3":
            assert await committer.list_uploads(dest, storage_options=options) == []
    assert {file.rpartition("/")[0] for file in space.files()} == {f"/t/{name}"}


@NAMED
async def test_places_that_options_name(name: str, tmp_path: Path) -> None:
    reports, kept, root = (tmp_path / kind / name for kind in ("reports", "kept", "root"))
    root.mkdir(parents=True)
    config = CommitterConfig(
        summary_report_directory=str(reports), diagnostics_manifest_directory=str(kept), absolute_roots=(str(root),)
    )
    async with committer.open_job(tmp_path / "table", job_id="j", config=config) as job:
        async with job.task_attempt(0) as task:
            for number, path in enumerate([root / name / "0", str(root / name / "1"), StorePath.of(root / name / "2")]):
                async with task.open_absolute(path) as file:
                    await file.write(b"%d" % number)
    assert sorted(os.listdir(root / name)) == ["0", "1", "2"]
    for directory in (reports, kept, root):
        assert os.listdir(directory.parent) == [name]
