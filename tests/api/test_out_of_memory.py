"""Memory that runs out never costs a file: a typed error, and a recovery that ends the job whole."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig, CommitterError
from committer.committers import forward_steps, preparing
from committer.errors import JobNotFoundError, JobUndecidedError, ValidationError
from committer.flow import spill, texts
from committer.flow.workers import run_workers
from committer.stages import durability as many_at_once
from committer.stages.check import superseded
from committer.stages.decide.commit_state import CommitState
from committer.stages.finish import validate_output
from committer.stages.load import load_records, planned_files
from committer.stages.publish import publish, sent_files
from committer.stores import batches
from committer.stores.local.disk import Disk
from committer.testing.faults import Call
from tests.places import Place, make_place
from tests.sweeps import Share


@pytest.fixture(autouse=True)
async def _let_listings_end() -> AsyncIterator[None]:
    """Those that broke off are closed by the loop, when nothing refers to their errors any more."""
    yield
    gc.collect()
    await asyncio.sleep(0)


KINDS = ("disk", "local", "adls", "gcs", "s3")
TASKS = ({"a": b"a", "p=1/b": b"b"}, {"c": b"c", "p=1/d": b"d", "p=2/e": b"e"})
WHOLE = {name: data for files in TASKS for name, data in files.items()}
CONFIG = CommitterConfig(conflict_mode="replace", io_concurrency=4)


async def _prepared(kind: str, tmp_path: Path) -> tuple[Place, list[committer.TaskCommit]]:
    place = make_place(kind, tmp_path)
    await place.run_job({"p=1/old": b"old"}, job_id="before")
    job = await place.open_job(job_id="J", config=CONFIG, delivery="message")
    messages = [await place.run_task(job, number, files) for number, files in enumerate(TASKS)]
    await job.close()
    return place, messages


async def _commit(place: Place, messages: list[committer.TaskCommit]) -> CommitterError | None:
    """Commits in a process that runs out of memory somewhere; nothing but a typed error may come of it."""
    try:
        async with place.attach_job("J") as job:
            await job.commit(messages, tasks=len(messages))
    except CommitterError as error:
        return error
    return None


async def _check(place: Place, messages: list[committer.TaskCommit], error: CommitterError | None) -> None:
    """`_SUCCESS` never with less; then a fresh process ends the job whole."""
    files = place.files()
    if error is None:
        assert files == WHOLE
        return
    marker = place.all_files().get("_SUCCESS", b"")
    if b'"J"' in marker:
        assert files == WHOLE
    if error.outcome == "unchanged":
        assert files == {"p=1/old": b"old"}
        with pytest.raises(JobUndecidedError):
            await place.recover("J")
    try:
        await place.recover("J")
    except (JobUndecidedError, JobNotFoundError):
        async with place.attach_job("J") as job:
            await job.commit(messages, tasks=len(messages))
    assert place.files() == WHOLE
    assert place.temporary() == set()
    assert (await committer.validate(place.dest, storage_options=place.options)).ok


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", KINDS)
async def test_at_every_store_call_of_a_commit(kind: str, when: str, tmp_path: Path, share: Share) -> None:
    for number in share.counted():
        place, messages = await _prepared(kind, tmp_path / str(number))
        first = len(place.store.calls)

        async def before(call: Call, at: int = first + number) -> None:
            if call.number == at:
                raise MemoryError

        def after(call: Call, at: int = first + number) -> None:
            if call.number == at:
                raise MemoryError

        if when == "before":
            place.store.before_call = before
        else:
            place.store.after_effect = after
        error = await _commit(place, messages)
        over = len(place.store.calls) < first + number
        place.store.before_call = place.store.after_effect = None
        try:
            await _check(place, messages, error)
        except BaseException as wrong:
            wrong.add_note(f"call {number}: {error!r}")
            raise
        await place.store.close()
        if over:
            break
    assert number > 20


POINTS: list[tuple[Any, str]] = [
    (load_records, "decode_record"),
    (planned_files, "decode_record"),
    (load_records.LoadRecords, "_gather"),
    (load_records.LoadRecords, "_check_sources"),
    (texts.Repeats, "add"),
    (texts.Repeats, "find"),
    (preparing, "prepare"),
    (forward_steps, "decision_content"),
    (CommitState, "of"),
    (superseded.ListSuperseded, "_take"),
    (publish.Published, "add"),
    (publish.PublishFiles, "_publish_together"),
    (sent_files.CompleteUploads, "_make_visible"),
    (validate_output, "problem_with"),
]


@pytest.mark.parametrize("point", POINTS, ids=[f"{owner.__name__}.{name}" for owner, name in POINTS])
@pytest.mark.parametrize("kind", ["disk", "s3"])
async def test_at_every_use_of_what_takes_memory(
    kind: str, point: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: Share
) -> None:
    owner, name = point
    real = vars(owner)[name]
    for at in share.of(range(1, 6)):
        place, messages = await _prepared(kind, tmp_path / str(at))
        uses = 0

        def short(*args: Any, at: int = at, **kwargs: Any) -> Any:
            nonlocal uses
            uses += 1
            if uses == at:
                raise MemoryError
            return real.__func__(*args, **kwargs) if isinstance(real, classmethod) else real(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, classmethod(short) if isinstance(real, classmethod) else short)
            error = await _commit(place, messages)
        if uses >= at:
            assert error is not None
        await _check(place, messages, error)
        await place.store.close()


async def test_spill_that_cannot_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "BLOCK", 2)
    monkeypatch.setattr(texts.Repeats.__init__, "__kwdefaults__", {"block": 2})
    for method in ("_write_block", "_read_block", "_decode"):
        place, messages = await _prepared("disk", tmp_path / method)

        def short(*_args: object) -> object:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(spill.SpillFile, method, short)
            error = await _commit(place, messages)
        await _check(place, messages, error)
        await place.store.close()


@pytest.mark.parametrize("name", ["status", "list", "read", "put", "rename_file", "rename_files", "rename_directory"])
async def test_thread_of_the_disk(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of a kind breaks off half of the time, before it or after it."""
    place, messages = await _prepared("disk", tmp_path)
    real: Callable[..., Any] = getattr(Disk, name)
    calls = 0

    def short(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 4 == 0:
            raise MemoryError
        result = real(*args, **kwargs)
        if calls % 4 == 2:
            raise MemoryError
        return result

    error: CommitterError | None = None
    with monkeypatch.context() as patch:
        patch.setattr(Disk, name, short)
        try:
            # Without the store that counts calls: it renames no files together.
            async with committer.attach_job(place.dest, job_id="J") as job:
                await job.commit(messages, tasks=len(messages))
        except CommitterError as failure:
            error = failure
    assert calls or name == "rename_file"
    await _check(place, messages, error)
    await place.store.close()


async def test_loop_that_cannot_be_told_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread tries again: its callers wait for nothing else."""
    monkeypatch.setattr(batches, "_NO_MEMORY_S", 0.0)
    loop = asyncio.get_running_loop()
    place, messages = await _prepared("disk", tmp_path)
    real = loop.call_soon_threadsafe
    tries = 0

    def short(*args: Any, **kwargs: Any) -> Any:
        nonlocal tries
        if threading.current_thread().name.startswith("committer-local"):
            tries += 1
            if tries % 3:
                raise MemoryError
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_soon_threadsafe", short)
        assert await _commit(place, messages) is None
    assert tries > 10
    await _check(place, messages, None)
    await place.store.close()


@pytest.mark.parametrize("kind", [*KINDS, "disk, many in a call"])
async def test_worker_that_is_lost_without_a_word(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Hadoop's threads are that die of a lack of memory: no error tells of the file, but the counts do."""
    together = kind == "disk, many in a call"
    place, messages = await _prepared("disk" if together else kind, tmp_path)

    async def losing(items: Iterable[Any], work: Any, **options: Any) -> int:
        return await run_workers(list(items)[1:], work, **options)

    with monkeypatch.context() as patch:
        for stage in (publish, many_at_once, sent_files):
            patch.setattr(stage, "run_workers", losing)
        # The store that counts calls renames no files together.
        job = await committer.attach_job(place.dest, job_id="J", storage_options=None if together else place.options)
        with pytest.raises(ValidationError, match="5 files of 5 bytes were decided, ") as caught:
            await job.commit(messages, tasks=len(messages))
        await job.close()
    assert place.files() != WHOLE
    assert "_SUCCESS" not in place.all_files()
    await _check(place, messages, caught.value)
    await place.store.close()
