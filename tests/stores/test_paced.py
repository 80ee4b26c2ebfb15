"""The pacing wrapper: a permit each attempt, Hadoop's counters, and only safe repetitions."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
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
    UnsupportedError,
)
from committer.events import Statistics
from committer.flow.pacing import Pacer
from committer.flow.retry import RetryPolicy
from committer.flow.runtime import use_runtime
from committer.flow.weights import Weights
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stores.base import (
    Store,
)
from committer.stores.local import LocalStore
from committer.stores.memory import MemorySpace, MemoryStore
from committer.stores.paced import PacedStore, without_retries
from committer.testing.conformance import Channel, StoreConformance
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore
from committer.testing.virtual_time import VirtualRuntime
from tests.stores.channels import DiskChannel, SpaceChannel

_numbers = itertools.count()


# --- Conformance --------------------------------------------------------------------------------------------------


class TestPacedOverMemory(StoreConformance):
    many = 500

    @pytest.fixture(params=["local", "adls", "s3", "azure-flat"])
    def space(self, request: pytest.FixtureRequest) -> MemorySpace:
        return MemoryStore.space(f"paced-{next(_numbers)}", request.param)

    @pytest.fixture
    def root(self, space: MemorySpace) -> StorePath:
        root = space.path("test/root")
        space.tree.make_directory(root, parents=True)
        return root

    @pytest.fixture
    def channel(self, space: MemorySpace, root: StorePath) -> Channel:
        return SpaceChannel(space, root)

    @pytest.fixture
    def store(self, space: MemorySpace) -> Store:
        return PacedStore(space.store(), pacer=Pacer("e", concurrency=2), statistics=Statistics())


class TestPacedOverDisk(StoreConformance):
    @pytest.fixture
    def root(self, tmp_path: Path) -> StorePath:
        return StorePath.of(tmp_path)

    @pytest.fixture
    def channel(self, root: StorePath) -> Channel:
        return DiskChannel(root)

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = PacedStore(LocalStore(), pacer=Pacer("e", concurrency=4, rate=1e5), statistics=Statistics())
        yield store
        await store.close()


# --- What is repeated ---------------------------------------------------------------------------------------------


class Bench:
    """A paced store over a memory space that fails as told."""

    def __init__(self, *, concurrency: int = 4, rate: float | None = None, attempts: int = 5) -> None:
        self.runtime = VirtualRuntime()
        abilities = dict.fromkeys(("multipart", "block_lists", "conditional_delete", "batch_delete"), True)
        self.space = MemoryStore.space(f"paced-{next(_numbers)}", **abilities)
        self.faulty = FaultyStore(self.space.store())
        self.pacer = Pacer("e", concurrency=concurrency, rate=rate, runtime=self.runtime)
        self.statistics = Statistics(self.runtime)
        self.store = PacedStore(
            self.faulty,
            pacer=self.pacer,
            statistics=self.statistics,
            retry_policy=RetryPolicy(attempts=attempts),
        )
        self.space.write("/d/file", b"old")
        self.space.write("/d/sub/deep", b"deep")
        self.space.tree.make_directory(self.space.path("empty"), parents=True)
        self.upload_id = self.space.uploads.create(self.path("d/up"), "stamp")
        self.part = self.space.uploads.put_part(self.path("d/up"), self.upload_id, 1, b"up")
        self.space.blocks.put(self.path("d/blocks"), "b1", b"block")
        self.identity = self.space.tree.file(self.path("d/file"), "read").identity or ""

    def path(self, name: str) -> StorePath:
        return self.space.path(name)

    def fail(self, kind: FaultKind, times: int | None = 1, **more: float) -> None:
        self.faulty.faults.append(Fault(kind=kind, times=times, **more))  # type: ignore[arg-type]

    def counter(self, name: str) -> int:
        return self.statistics.counter(name)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    assert bench.pacer.in_use == bench.pacer.waiting == 0
    MemoryStore.forget(bench.space.name)


async def list_all(bench: Bench) -> list[str]:
    return sorted([entry.path.name async for entry in bench.store.list(bench.path("d"))])


async def list_uploads(bench: Bench) -> list[str]:
    return [upload.upload_id async for upload in bench.store.list_uploads(bench.path("d"))]


async def list_parts(bench: Bench) -> list[int]:
    return [part.number async for part in bench.store.list_parts(bench.path("d/up"), bench.upload_id)]


def left_in(bench: Bench) -> object:
    """Everything in the store: files, directories, pending uploads with their parts, blocks."""
    space = bench.space
    uploads = [(one.upload_id, space.uploads.parts(one.path, one.upload_id)) for one in space.uploads]
    return space.files(), space.directories(), uploads, space.blocks.listed(bench.path("d/blocks"))


Use = Callable[[Bench], Awaitable[object]]

READS: dict[str, Use] = {
    "status": lambda bench: bench.store.status(bench.path("d/file")),
    "list": list_all,
    "read": lambda bench: bench.store.read(bench.path("d/file"), limit=10),
    "probe": lambda bench: bench.store.probe(bench.path("d")),
    "list_uploads": list_uploads,
    "list_parts": list_parts,
    "list_uncommitted_blocks": lambda bench: bench.store.list_uncommitted_blocks(bench.path("d/blocks")),
}
REPEATABLE: dict[str, Use] = {
    "put": lambda bench: bench.store.put(bench.path("d/file"), b"new"),
    "make_directory": lambda bench: bench.store.make_directory(bench.path("made"), parents=False),
    "delete_file": lambda bench: bench.store.delete_file(bench.path("d/file")),
    "delete_directory": lambda bench: bench.store.delete_directory(bench.path("empty"), recursive=False),
    "delete_directory, recursive": lambda bench: bench.store.delete_directory(bench.path("d"), recursive=True),
    "sync": lambda bench: bench.store.sync(bench.path("d/file"), kind="file"),
    "delete_file_if": lambda bench: bench.store.delete_file_if(bench.path("d/file"), identity=bench.identity),
    "delete_files": lambda bench: bench.store.delete_files([bench.path("d/file"), bench.path("d/sub/deep")]),
    "put_part": lambda bench: bench.store.put_part(bench.path("d/up"), bench.upload_id, 2, b"more"),
    "abort_upload": lambda bench: bench.store.abort_upload(bench.path("d/up"), bench.upload_id),
    "put_block": lambda bench: bench.store.put_block(bench.path("d/blocks"), "b2", b"more"),
}
ONCE: dict[str, Use] = {
    "put, exclusive": lambda bench: bench.store.put(bench.path("d/new"), b"new", exclusive=True),
    "open_writer": lambda bench: bench.store.open_writer(bench.path("d/new")),
    "rename_file": lambda bench: bench.store.rename_file(bench.path("d/file"), bench.path("d/moved")),
    "rename_file, replacing": lambda bench: bench.store.rename_file(
        bench.path("d/file"), bench.path("d/sub/deep"), replace=True
    ),
    "rename_directory": lambda bench: bench.store.rename_directory(bench.path("d"), bench.path("moved")),
    "link_file": lambda bench: bench.store.link_file(bench.path("d/file"), bench.path("d/link")),
    "create_upload": lambda bench: bench.store.create_upload(bench.path("d/up"), stamp="stamp"),
    "complete_upload": lambda bench: bench.store.complete_upload(bench.path("d/up"), bench.upload_id, [bench.part]),
    "complete_upload, exclusive": lambda bench: bench.store.complete_upload(
        bench.path("d/up"), bench.upload_id, [bench.part], exclusive=True
    ),
    "put_block_list": lambda bench: bench.store.put_block_list(bench.path("d/blocks"), ["b1"], stamp="stamp"),
    "put_block_list, conditional": lambda bench: bench.store.put_block_list(
        bench.path("d/file"), [], stamp="stamp", identity=bench.identity
    ),
}
ALL = {**READS, **REPEATABLE, **ONCE}


def each(uses: dict[str, Use]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("use", list(uses.values()), ids=list(uses))


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


async def test_a_lost_completion_is_found_by_stamp_and_length(bench: Bench) -> None:
    with use_runtime(bench.runtime):
        bench.fail("lost")
        with pytest.raises(StoreOutcomeUnknownError):
            await bench.store.complete_upload(bench.path("d/up"), bench.upload_id, [bench.part], exclusive=True)
        with pytest.raises(StoreUploadNotFoundError):
            await list_parts(bench)
        status = await bench.store.status(bench.path("d/up"))
    assert (status.stamp, status.size) == ("stamp", 2)


class _Refusing(MemoryStore):
    """Refuses single names of a batch, as DeleteObjects does inside an answer that is 200."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.answers: list[dict[str, StoreError]] = []
        self.asked: list[list[str]] = []

    async def delete_files(self, paths: Sequence[StorePath]) -> Mapping[StorePath, StoreError]:
        self.asked.append([path.name for path in paths])
        refused = self.answers.pop(0) if self.answers else {}
        await super().delete_files([path for path in paths if path.name not in refused])
        return {path: refused[path.name] for path in paths if path.name in refused}


def refusing(bench: Bench) -> tuple[_Refusing, PacedStore]:
    inner = _Refusing(bench.space.name)
    policy = RetryPolicy(attempts=3)
    return inner, PacedStore(inner, pacer=bench.pacer, statistics=bench.statistics, retry_policy=policy)


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
        assert await store.delete_files(paths) == {paths[0]: forbidden}
    assert inner.asked == [["w", "x", "y", "z"], ["x", "y"], ["y"]]
    assert [path.name for path in paths if path.path in bench.space.files()] == ["w"]
    assert bench.statistics.snapshot().counters == {
        "object_bulk_delete_request": 1,
        "store_io_request": 3,
        "store_io_retry": 2,
        "store_io_throttled": 2,
    }


async def test_names_of_a_batch_that_stay_refused_are_told(bench: Bench) -> None:
    inner, store = refusing(bench)
    slow = StoreThrottledError("slow down", operation="delete_files")
    inner.answers = [{"a": slow}] * 3
    with use_runtime(bench.runtime):
        assert await store.delete_files([bench.path("a"), bench.path("b")]) == {bench.path("a"): slow}
        assert len(inner.asked) == 3
        assert await store.delete_files([]) == {}
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


# --- Pacing -------------------------------------------------------------------------------------------------------


@each(ALL)
async def test_every_attempt_takes_a_permit(use: Use) -> None:
    bench = Bench(concurrency=1, rate=1.0)
    with use_runtime(bench.runtime):
        bench.fail("unavailable", 2)
        await use(bench)
        await use_status(bench)
    assert sum(bench.pacer.granted.values()) == 4
    # The first token is there, each further one takes a second.
    assert bench.runtime.monotonic() >= 3.0
    assert bench.statistics.snapshot().meanstatistics["store_io_rate_limited.mean"].samples >= 1
    assert bench.counter("store_io_rate_limited") == 0
    MemoryStore.forget(bench.space.name)


async def use_status(bench: Bench) -> None:
    await bench.store.status(bench.path(""))


async def test_kinds_of_permits(bench: Bench) -> None:
    await READS["status"](bench)
    await list_all(bench)
    await REPEATABLE["put"](bench)
    await REPEATABLE["delete_directory, recursive"](bench)
    assert bench.pacer.granted == {"read": 2, "write": 1, "delete": 1}


def weighted(weights: Weights, rate: float = 1.0) -> Bench:
    bench = Bench(rate=rate)
    bench.store = PacedStore(bench.faulty, pacer=bench.pacer, statistics=bench.statistics, weights=weights)
    return bench


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("status", 3.0), ("list", 3.0), ("put", 5.0), ("rename_file", 5.0), ("delete_file", 7.0), ("delete_files", 14.0)],
)
async def test_a_call_costs_the_weight_of_its_kind(name: str, seconds: float) -> None:
    bench = weighted(Weights(read=3, write=5, delete=7))
    with use_runtime(bench.runtime):
        await bench.store.probe(bench.path("d"))
        took = bench.runtime.monotonic()
        await ALL[name](bench)
    # The probe before it took the one token that was there, and waited for its other four.
    assert took == pytest.approx(4.0)
    assert bench.runtime.monotonic() - took == pytest.approx(seconds)
    MemoryStore.forget(bench.space.name)


async def test_a_weight_of_nothing_leaves_a_kind_out_of_the_rate() -> None:
    bench = weighted(Weights(read=0, delete=0))
    with use_runtime(bench.runtime):
        for _ in range(50):
            await READS["status"](bench)
        await REPEATABLE["delete_files"](bench)
        assert bench.runtime.monotonic() == 0.0
        for _ in range(3):
            await REPEATABLE["put"](bench)
        assert bench.runtime.monotonic() == pytest.approx(2.0)
    MemoryStore.forget(bench.space.name)


async def test_names_of_a_batch_that_are_sent_again_cost_their_own_number(bench: Bench) -> None:
    bench.pacer = Pacer("e", concurrency=1, rate=1.0, runtime=bench.runtime)
    inner, store = refusing(bench)
    inner.answers = [{"x": StoreUnavailableError("busy", operation="delete_files")}]
    with use_runtime(bench.runtime):
        await store.delete_files([bench.path(name) for name in "wxyz"])
        assert bench.runtime.monotonic() == pytest.approx(4.0)
    assert inner.asked == [["w", "x", "y", "z"], ["x"]]


async def test_a_store_without_retries_keeps_its_weights(bench: Bench) -> None:
    heavy = PacedStore(bench.faulty, pacer=bench.pacer, statistics=bench.statistics, weights=Weights(write=9))
    assert without_retries(heavy).weights == Weights(write=9)  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(heavy.weights)) == heavy.weights


@pytest.mark.every_loop
async def test_a_throttled_call_pauses_every_caller() -> None:
    bench = Bench(concurrency=8)
    with use_runtime(bench.runtime):
        bench.fail("throttled", 1, retry_after_s=20.0)
        with pytest.raises(StoreThrottledError):
            await PacedStore(
                bench.faulty, pacer=bench.pacer, statistics=bench.statistics, retry_policy=RetryPolicy(attempts=1)
            ).status(bench.path("d/file"))
        await bench.store.status(bench.path("d/file"))
    assert bench.runtime.monotonic() == pytest.approx(20.0)
    assert bench.pacer.concurrency == 5
    MemoryStore.forget(bench.space.name)


@pytest.mark.every_loop
async def test_no_permit_is_held_between_the_entries_of_a_listing() -> None:
    bench = Bench(concurrency=1)
    async with asyncio.timeout(5):
        async for entry in bench.store.list(bench.path("d")):
            await bench.store.status(entry.path)
            assert bench.pacer.in_use == 0
    MemoryStore.forget(bench.space.name)


@pytest.mark.every_loop
async def test_a_listing_left_early_is_closed(bench: Bench) -> None:
    listing = bench.store.list(bench.path("d"))
    async for _ in listing:
        break
    await listing.aclose()  # type: ignore[attr-defined]
    assert bench.pacer.in_use == 0


async def test_a_listing_that_fails_on_its_way_is_not_begun_again(bench: Bench) -> None:
    seen = []
    bench.fail("lost")
    with pytest.raises(StoreUnavailableError):
        async for entry in bench.store.list(bench.path("d")):
            seen.append(entry)
    assert len(seen) == 2
    assert bench.faulty.count() == 1


async def test_an_empty_listing(bench: Bench) -> None:
    assert [entry async for entry in bench.store.list(bench.path("empty"))] == []


@pytest.mark.every_loop
async def test_many_callers_stay_within_the_limits() -> None:
    bench = Bench(concurrency=6, rate=50.0)
    in_flight = most = 0

    async def slow(call: object) -> None:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await bench.runtime.sleep(0.2)
        in_flight -= 1

    bench.faulty.before_call = slow

    async def work(number: int) -> None:
        await bench.store.put(bench.path(f"d/part-{number}"), b"")

    with use_runtime(bench.runtime):
        await run_workers(range(300), work, workers=50)
    assert most == 6
    assert bench.runtime.monotonic() == pytest.approx(10.0, rel=0.02)
    MemoryStore.forget(bench.space.name)


@pytest.mark.every_loop
async def test_cancelling_frees_the_permit(bench: Bench) -> None:
    reached = asyncio.Event()

    async def hang(call: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    bench.faulty.before_call = hang
    task = asyncio.ensure_future(READS["status"](bench))
    await reached.wait()
    assert bench.pacer.in_use == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- Statistics ---------------------------------------------------------------------------------------------------

STATISTICS = {
    "status": "op_get_file_status",
    "list": "op_list_status",
    "read": "op_open",
    "put": "op_create",
    "make_directory": "op_mkdirs",
    "delete_file": "op_delete",
    "delete_directory": "op_delete",
    "delete_directory, recursive": "op_delete_dir",
    "sync": "op_hsync",
    "put, exclusive": "op_create",
    "open_writer": "op_create",
    "rename_file": "commit_file_rename",
    "rename_file, replacing": "commit_file_rename",
    "rename_directory": "op_rename",
    "link_file": "op_link",
    "delete_file_if": "op_delete",
    "delete_files": "object_bulk_delete_request",
    "create_upload": "object_multipart_initiated",
    "put_part": "multipart_upload_part_put",
    "complete_upload": "committer_materialize_file",
    "complete_upload, exclusive": "committer_materialize_file",
    "abort_upload": "object_multipart_aborted",
    "list_uploads": "object_multipart_list",
    "list_parts": "object_multipart_list_parts",
    "put_block": "multipart_upload_part_put",
    "put_block_list": "committer_materialize_file",
    "put_block_list, conditional": "committer_materialize_file",
    "list_uncommitted_blocks": "object_multipart_list_parts",
}


@pytest.mark.parametrize(("name", "statistic"), STATISTICS.items())
async def test_each_operation_is_counted_once_under_hadoops_name(bench: Bench, name: str, statistic: str) -> None:
    with use_runtime(bench.runtime):
        bench.fail("unavailable", 2)
        await ALL[name](bench)
        counters = bench.statistics.snapshot().counters
        assert counters == {statistic: 1, "store_io_request": 3, "store_io_retry": 2}
        bench.fail("forbidden")
        with pytest.raises(StoreError):
            await ALL[name](bench)
    assert bench.counter(statistic) == 2
    assert bench.counter(f"{statistic}.failures") == 1


# --- The rest -----------------------------------------------------------------------------------------------------


async def test_a_pickled_copy_has_limits_of_its_own() -> None:
    space = MemoryStore.space(f"paced-{next(_numbers)}")
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


class _Bare(MemoryStore):
    """A memory store that has none of the optional abilities."""

    link_file = sync = local_path = None  # type: ignore[assignment]
    create_upload = put_block = delete_file_if = delete_files = None  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> object:
        if name in {"link_file", "sync", "create_upload", "put_block", "delete_file_if", "delete_files"}:
            raise AttributeError(name)
        return super().__getattribute__(name)


async def test_abilities_the_inner_store_lacks(bench: Bench) -> None:
    store = PacedStore(_Bare(bench.space.name), pacer=bench.pacer, statistics=bench.statistics)
    path = bench.path("d/file")
    with pytest.raises(UnsupportedError, match="hard links"):
        await store.link_file(path, bench.path("d/link"))
    with pytest.raises(UnsupportedError, match="syncing"):
        await store.sync(path, kind="file")
    with pytest.raises(UnsupportedError, match="symbolic links"):
        await store.find_link(path, ["a"])
    with pytest.raises(UnsupportedError, match="local paths"):
        store.local_path(path)
    with pytest.raises(UnsupportedError, match="conditional deletes"):
        await store.delete_file_if(path, identity="any")
    with pytest.raises(UnsupportedError, match="batch deletes"):
        await store.delete_files([path])
    for use in (
        store.create_upload(path, stamp=""),
        store.put_part(path, "any", 1, b""),
        store.complete_upload(path, "any", []),
        store.abort_upload(path, "any"),
    ):
        with pytest.raises(UnsupportedError, match="uploads"):
            await use
    with pytest.raises(UnsupportedError, match="uploads"):
        await anext(store.list_uploads(path))
    with pytest.raises(UnsupportedError, match="uploads"):
        await anext(store.list_parts(path, "any"))
    for blocks in (
        store.put_block(path, "any", b""),
        store.put_block_list(path, [], stamp=""),
        store.list_uncommitted_blocks(path),
    ):
        with pytest.raises(UnsupportedError, match="block lists"):
            await blocks


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


def test_local_paths_go_through(tmp_path: Path) -> None:
    async def look() -> str:
        store = PacedStore(LocalStore(), pacer=Pacer("e", concurrency=1), statistics=Statistics())
        return store.local_path(StorePath.of(tmp_path / "x"))

    assert asyncio.run(look()) == str(tmp_path / "x")
