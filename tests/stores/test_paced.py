"""The pacing wrapper: only safe repetitions; what the inner store is and can do shows through."""

from __future__ import annotations

import asyncio
import gc
import itertools
import pickle
import weakref
from pathlib import Path

import pytest

from committer.errors import (
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePermissionError,
    StorePreconditionError,
    StoreThrottledError,
    StoreUnavailableError,
    StoreUploadNotFoundError,
)
from committer.events import Statistics
from committer.flow.pacing import Pacer
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.stores.paced import PacedStore
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore
from committer.testing.virtual_time import VirtualRuntime
from tests.stores.paced_bench import ALL, ONCE, READS, REPEATABLE, Bench, Use, each, left_in, refusing

_numbers = itertools.count()


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
@pytest.mark.parametrize("operation", ["status", "rename"])
async def test_an_error_is_freed_at_once_with_its_frames(bench: Bench, operation: str, waits: bool) -> None:
    """A validation can meet one for each of millions of missing files: none is to wait for the cycle collector."""
    store = PacedStore(bench.space.store(), pacer=bench.pacer, statistics=bench.statistics)
    gone, other = bench.path("d/gone"), bench.path("d/other")
    gc.collect()
    gc.disable()
    try:
        with use_runtime(bench.runtime), pytest.raises(StoreNotFoundError) as caught:
            if waits:
                bench.pacer.throttled(1.0)
            await (store.status(gone) if operation == "status" else store.rename_file(gone, other))
        error = weakref.ref(caught.value)
        del caught
        assert error() is None
    finally:
        gc.enable()


@each(ALL)
@pytest.mark.parametrize("kind", ["throttled", "unavailable"])
async def test_what_was_refused_is_sent_again(bench: Bench, use: Use, kind: FaultKind) -> None:
    with use_runtime(bench.runtime):
        bench.fail(kind, 3)
        await use(bench)
    assert bench.faulty.count() == bench.counter("store_io_request") == 4
    assert bench.counter("store_io_retry") == 3
    assert bench.counter("store_io_throttled") == bench.pacer.throttles == (3 if kind == "throttled" else 0)


@each(ALL)
async def test_attempts_are_bounded(bench: Bench, use: Use) -> None:
    with use_runtime(bench.runtime):
        bench.fail("unavailable", None)
        with pytest.raises(StoreUnavailableError):
            await use(bench)
    assert bench.faulty.count() == 5


@each(ALL)
async def test_an_error_that_is_an_answer_is_raised_at_once(bench: Bench, use: Use) -> None:
    bench.fail("forbidden")
    with pytest.raises(StoreError, match="no right"):
        await use(bench)
    assert bench.faulty.count() == 1


LISTINGS = ("list", "list_uploads", "list_parts")


# What hits a listing after its effect comes behind its last entry, where it is not repeated any more.
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in READS for kind in ("lost", "unanswered") if not (name in LISTINGS and kind == "lost")],
)
async def test_a_question_is_asked_again(bench: Bench, name: str, kind: FaultKind) -> None:
    use = READS[name]
    with use_runtime(bench.runtime):
        bench.fail(kind, 2)
        await use(bench)
        assert bench.faulty.count() == 3
        bench.fail(kind, None)
        # Nothing was changed, so nothing is unknown.
        with pytest.raises(StoreUnavailableError) as caught:
            await use(bench)
        assert caught.value.outcome == "unchanged"


@each(REPEATABLE)
@pytest.mark.parametrize("kind", ["lost", "unanswered"])
async def test_what_can_be_repeated_is_repeated_after_a_lost_answer(bench: Bench, use: Use, kind: FaultKind) -> None:
    undisturbed = Bench()
    await use(undisturbed)
    with use_runtime(bench.runtime):
        bench.fail(kind, 2)
        await use(bench)
        assert left_in(bench) == left_in(undisturbed)
    assert bench.faulty.count() == 3
    MemoryStore.forget(undisturbed.space.name)


@each(REPEATABLE)
async def test_an_answer_that_stays_lost_is_an_unknown_outcome(bench: Bench, use: Use) -> None:
    with use_runtime(bench.runtime):
        bench.fail("lost", 1)
        bench.fail("unavailable", None)
        with pytest.raises(StoreOutcomeUnknownError) as caught:
            await use(bench)
    assert caught.value.outcome == "unknown"


@each(ONCE)
@pytest.mark.parametrize("kind", ["lost", "unanswered"])
async def test_what_cannot_be_repeated_never_is(bench: Bench, use: Use, kind: FaultKind) -> None:
    with use_runtime(bench.runtime):
        bench.fail(kind)
        with pytest.raises(StoreOutcomeUnknownError):
            await use(bench)
        assert bench.faulty.count() == 1
        # Nor after a refusal: the first lost answer ends it.
        bench.fail("throttled")
        bench.fail(kind)
        with pytest.raises(
            (
                StoreOutcomeUnknownError,
                StoreNotFoundError,
                StoreExistsError,
                StoreUploadNotFoundError,
                StorePreconditionError,
                StorePartsError,
            )
        ):
            await use(bench)
        assert bench.faulty.count() <= 3


async def test_a_repeated_delete_may_say_false_of_what_it_deleted(bench: Bench) -> None:
    with use_runtime(bench.runtime):
        bench.fail("lost")
        assert not await bench.store.delete_file(bench.path("d/file"))
    assert "/d/file" not in bench.space.files()


async def test_a_repeated_conditional_delete_may_meet_another_file(bench: Bench) -> None:
    async def replace(call: Call) -> None:
        if call.number == 2:
            bench.space.write("/d/file", b"theirs")

    bench.faulty.before_call = replace
    with use_runtime(bench.runtime):
        bench.fail("lost")
        with pytest.raises(StorePreconditionError) as caught:
            await bench.store.delete_file_if(bench.path("d/file"), identity=bench.identity)
    assert caught.value.outcome == "unknown"
    assert bench.space.files()["/d/file"] == b"theirs"


async def test_names_of_a_batch_that_were_refused_are_sent_again_alone(bench: Bench) -> None:
    inner, store = refusing(bench)
    forbidden = StorePermissionError("no", operation="delete_files")
    slow = StoreThrottledError("slow down", operation="delete_files")
    busy = StoreUnavailableError("busy", operation="delete_files")
    inner.answers = [{"w": forbidden, "x": slow, "y": busy}, {"y": slow}]
    paths = [bench.path(name) for name in "wxyz"]
    for path in paths:
        bench.space.write(path.path, b"")
    with use_runtime(bench.runtime):
        assert await store.delete_files(dict.fromkeys(paths)) == {paths[0]: forbidden}
    assert inner.asked == [["w", "x", "y", "z"], ["x", "y"], ["y"]]
    assert [path.name for path in paths if path.path in bench.space.files()] == ["w"]
    assert bench.statistics.snapshot().counters == {
        "object_bulk_delete_request": 1,
        "store_io_request": 3,
        "store_io_retry": 2,
        "store_io_throttled": 2,
    }


async def test_names_of_a_conditional_batch_that_were_refused_are_sent_again_alone(bench: Bench) -> None:
    inner, store = refusing(bench)
    forbidden = StorePermissionError("no", operation="delete_files")
    slow = StoreThrottledError("slow down", operation="delete_files")
    inner.answers = [{"w": forbidden, "x": slow}]
    for name in "wxyz":
        bench.space.write(f"/{name}", name.encode())
    files = {bench.path(name): (await bench.space.store().status(bench.path(name))).identity or "" for name in "wxyz"}
    bench.space.write("/z", b"another job's")
    with use_runtime(bench.runtime):
        found = await store.delete_files(files)
        assert await store.delete_files({}) == {}
    assert {path.name: type(error) for path, error in found.items()} == {
        "w": StorePermissionError,
        "z": StorePreconditionError,
    }
    assert inner.asked == [["w", "x", "y", "z"], ["x"]]
    assert {name: data for name, data in bench.space.files().items() if len(name) == 2} == {
        "/w": b"w",
        "/z": b"another job's",
    }


async def test_a_conditional_batch_is_sent_again_after_a_lost_answer_and_meets_no_other_file(bench: Bench) -> None:
    async def replace(call: Call) -> None:
        if call.number == 2:
            bench.space.write("/d/file", b"theirs")

    bench.faulty.before_call = replace
    deep = bench.space.tree.file(bench.path("d/sub/deep"), "read").identity or ""
    with use_runtime(bench.runtime):
        bench.fail("lost")
        found = await bench.store.delete_files({bench.path("d/file"): bench.identity, bench.path("d/sub/deep"): deep})
    assert bench.faulty.count("delete_files") == 2
    # What exists there is spared. Whether the file that was meant was deleted only the lost answer said.
    assert [(path.name, type(error), error.outcome) for path, error in found.items()] == [
        ("file", StorePreconditionError, "unknown")
    ]
    assert bench.space.files()["/d/file"] == b"theirs"
    assert "/d/sub/deep" not in bench.space.files()


async def test_names_of_a_batch_that_stay_refused_are_told(bench: Bench) -> None:
    inner, store = refusing(bench)
    slow = StoreThrottledError("slow down", operation="delete_files")
    inner.answers = [{"a": slow}] * 3
    with use_runtime(bench.runtime):
        assert await store.delete_files(dict.fromkeys([bench.path("a"), bench.path("b")])) == {bench.path("a"): slow}
        assert len(inner.asked) == 3
        assert await store.delete_files({}) == {}
    assert len(inner.asked) == 3


async def test_the_writer(bench: Bench) -> None:
    with use_runtime(bench.runtime):
        writer = await bench.store.open_writer(bench.path("d/new"))
        bench.fail("throttled", 2)
        await writer.write(b"hello ")
        await writer.write(b"world")
        bench.fail("unavailable")
        status = await writer.close()
        assert status.size == 11
        bench.fail("lost", 2)
        await writer.abort()
        second = await bench.store.open_writer(bench.path("d/second"))
        bench.fail("lost")
        with pytest.raises(StoreOutcomeUnknownError):
            await second.write(b"x")
        await second.abort()
    assert bench.space.files()["/d/new"] == b"hello world"
    assert bench.faulty.counts()["write"] == 5


async def test_directories_that_were_there_are_counted(bench: Bench) -> None:
    """As Hadoop counts them: it makes each, and is told whether that was needed."""
    path = bench.path("new")
    assert await bench.store.make_directory(path, parents=True)
    assert bench.counter("op_mkdir_returned_false") == 0
    assert not await bench.store.make_directory(path, parents=True)
    assert (bench.counter("op_mkdirs"), bench.counter("op_mkdir_returned_false")) == (2, 1)


async def test_a_pickled_copy_has_limits_of_its_own() -> None:
    space = MemoryStore.space(f"copied-{next(_numbers)}")
    store = PacedStore(space.store(), pacer=Pacer("e", concurrency=1, rate=2.0), statistics=Statistics())
    space.write("/file", b"x")
    async with store.pacer.permit():
        waiting = asyncio.create_task(store.status(space.path("file")))
        await asyncio.sleep(0)
        copy = pickle.loads(pickle.dumps(store))
        assert (copy.pacer.in_use, copy.pacer.waiting, copy.pacer.concurrency, copy.pacer.rate) == (0, 0, 1, 2.0)
        assert (await copy.status(space.path("file"))).size == 1
    assert (await waiting).size == 1


async def test_what_the_inner_store_is_shows_through(bench: Bench) -> None:
    store = bench.store
    assert store.capabilities is bench.faulty.capabilities
    assert (store.scheme, store.endpoint) == (bench.faulty.scheme, bench.faulty.endpoint)
    await store.close()


async def test_looking_for_links_is_one_call_that_is_sent_again(tmp_path: Path) -> None:
    faulty = FaultyStore(LocalStore(), [Fault(kind="lost", operation="find_link"), Fault(kind="unavailable")])
    runtime = VirtualRuntime()
    statistics = Statistics()
    store = PacedStore(faulty, pacer=Pacer("e", concurrency=1), statistics=statistics)
    (tmp_path / "link").symlink_to("anywhere")
    with use_runtime(runtime):
        assert await store.find_link(StorePath.of(tmp_path), ["a", "link/b"]) == "link"
    assert faulty.count() == statistics.snapshot().counters["store_io_request"] == 3
    await store.close()
