"""The pacing wrapper: a permit each attempt, which is freed whatever happens, and Hadoop's counters."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from committer.errors import StoreError, StoreThrottledError, StoreUnavailableError
from committer.flow.pacing import ONE_EACH, Pacer, Weights
from committer.flow.retry import RetryPolicy
from committer.flow.runtime import use_runtime
from committer.flow.workers import run_workers
from committer.stores.memory import MemoryStore
from committer.stores.paced import PacedStore, without_retries
from tests.stores.paced_bench import ALL, READS, REPEATABLE, Bench, Use, each, refusing


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


def weighted(weights: Weights, rate: float = 1.0) -> Bench:
    bench = Bench(rate=rate)
    bench.store = PacedStore(bench.faulty, pacer=bench.pacer, statistics=bench.statistics, weights=weights)
    return bench


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("status", 3.0),
        ("list", 3.0),
        ("put", 5.0),
        ("rename_file", 5.0),
        ("delete_file", 7.0),
        ("delete_files", 14.0),
        ("delete_files, conditional", 14.0),
    ],
)
async def test_a_call_costs_the_weight_of_its_kind(name: str, seconds: float) -> None:
    bench = weighted({"read": 3, "write": 5, "delete": 7})
    with use_runtime(bench.runtime):
        await bench.store.probe(bench.path("d"))
        took = bench.runtime.monotonic()
        await ALL[name](bench)
    # The probe before it took the one token that was there, and waited for its other four.
    assert took == pytest.approx(4.0)
    assert bench.runtime.monotonic() - took == pytest.approx(seconds)
    MemoryStore.forget(bench.space.name)


async def test_a_weight_of_nothing_leaves_a_kind_out_of_the_rate() -> None:
    bench = weighted({"read": 0, "write": 1, "delete": 0})
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
        await store.delete_files(dict.fromkeys(bench.path(name) for name in "wxyz"))
        assert bench.runtime.monotonic() == pytest.approx(4.0)
    assert inner.asked == [["w", "x", "y", "z"], ["x"]]


async def test_a_store_without_retries_keeps_its_weights(bench: Bench) -> None:
    heavy = PacedStore(bench.faulty, pacer=bench.pacer, statistics=bench.statistics, weights={**ONE_EACH, "write": 9})
    assert without_retries(heavy).weights == {**ONE_EACH, "write": 9}  # type: ignore[attr-defined]
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
    in_use: list[int] = []
    async with asyncio.timeout(5):
        async for entry in bench.store.list(bench.path("d")):
            await bench.store.status(entry.path)
            in_use.append(bench.pacer.in_use)
    assert len(in_use) > 1
    assert set(in_use) == {0}
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
    "delete_files, conditional": "object_bulk_delete_request",
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
