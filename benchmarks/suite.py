"""What the suites share: the stores they run on, jobs to commit, and what is measured beside time."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import pytest

import committer
from benchmarks.slow_store import SlowStore
from benchmarks.traced_store import TracedStore, round_trips
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer.stores.base import Store
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.stores.s3 import S3Store
from tests.stores.adls_process import account_process

LATENCY_S: Final = 0.005
WORKERS: Final = 256

Sized: TypeAlias = Callable[[int, int], int]
"""The first number at full size, the second in the smoke form."""

Delivery = Literal["listing", "message"]
DELIVERIES: Final[tuple[Delivery, ...]] = ("listing", "message")
HEADINGS: Final = ("", "files", "calls", "round trips", "call p50 ms", "p99 ms", "CPU us/file", "store's own calls/s")

_number = itertools.count()


class Place(NamedTuple):
    """Where a benchmark commits.

    Attributes:
        root: A directory of its own; destinations go below it.
        store: What is committed to.
    """

    root: StorePath
    store: Store


@contextmanager
def _local(folder: Path) -> Iterator[Place]:
    yield Place(StorePath.of(folder), LocalStore())


@contextmanager
def _latency(folder: Path) -> Iterator[Place]:
    yield Place(StorePath.of(folder), SlowStore(LATENCY_S))


@contextmanager
def _memory(folder: Path) -> Iterator[Place]:
    space = f"benchmark-{next(_number)}"
    yield Place(StorePath.of(f"memory://{space}/root"), MemoryStore(space))


@contextmanager
def _adls(folder: Path) -> Iterator[Callable[[], Place]]:
    with account_process() as account:
        root = StorePath.of(account.uri("root"))
        options = {"endpoint": account.endpoint, "account_key": account.key}
        yield lambda: Place(root, AdlsStore.open_for(root, options))


def _s3(name: Literal["seaweedfs", "moto"]) -> Callable[[Path], AbstractContextManager[Callable[[], Place]]]:
    @contextmanager
    def started(folder: Path) -> Iterator[Callable[[], Place]]:
        pytest.importorskip("boto3", reason="boto3 makes the bucket")
        from tests.s3 import servers

        with getattr(servers, name)(folder) as server:
            root = StorePath("s3", servers.BUCKET, "/root")
            options = {
                "endpoint_url": server.url,
                "region": "us-east-1",
                "access_key_id": servers.KEY_ID,
                "secret_access_key": servers.KEY,
            }
            yield lambda: Place(root, S3Store.open_for(root, options))

    return started


_HERE: Final[dict[str, Callable[[Path], AbstractContextManager[Place]]]] = {
    "local": _local,
    "latency": _latency,
    "memory": _memory,
}
_SERVERS: Final[dict[str, Callable[[Path], AbstractContextManager[Callable[[], Place]]]]] = {
    # An emulator or a real server is one more line: what starts it, and ends it.
    "adls-emulator": _adls,
    "seaweedfs": _s3("seaweedfs"),
    "moto": _s3("moto"),
}
STORES: Final = (*_HERE, *_SERVERS)
"""Every store that publishing and task commits are measured on."""

SLOW: Final = frozenset({"moto"})
"""Servers that answer one call after the other, a few hundred a second: they get a tenth of the files."""


class Stores:
    """Opens stores, and keeps the servers that it started for them until the stack is closed.

    Args:
        folder: An empty folder of this machine, for what servers keep.
        stack: Ends the servers.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._started: dict[str, Callable[[], Place]] = {}

    @contextmanager
    def open(self, name: str, folder: Path) -> Iterator[tuple[Place, asyncio.Runner]]:
        """A store by its name, with an empty folder for what it keeps here, and the loop to use it in."""
        with ExitStack() as stack, asyncio.Runner() as runner:
            place = stack.enter_context(_HERE[name](folder)) if name in _HERE else self._server(name)()
            try:
                yield place, runner
            finally:
                runner.run(place.store.close())

    def _server(self, name: str) -> Callable[[], Place]:
        if name not in self._started:
            folder = self._folder / name
            folder.mkdir()
            self._started[name] = self._stack.enter_context(_SERVERS[name](folder))
        return self._started[name]


def destination(place: Place) -> StorePath:
    """A directory that nothing was committed to yet."""
    return place.root / f"job-{next(_number)}"


async def written_job(
    where: StorePath, store: Store, *, tasks: int, files: int, directories: int, delivery: Delivery = "listing"
) -> committer.Job:
    """A job whose tasks are committed; file n of the job lies in directory n modulo `directories`."""
    job = await committer.open_job(where, delivery=delivery, storage_options={"store": store})

    async def write(number: int) -> None:
        async with job.task_attempt(number) as task:
            for file in range(number * files, (number + 1) * files):
                async with task.open(f"d={file % directories}/part-{file:07d}") as handle:
                    await handle.write(b"x")

    await run_workers(range(tasks), write, workers=64)
    return job


class Meter:
    """Measures beside the time: calls, round trips and CPU of the last round, how long a call takes in all rounds.

    Args:
        store: The store under test.
    """

    def __init__(self, store: Store) -> None:
        self.store: Final = TracedStore(store)
        self._cpu_s = 0.0
        self._durations: dict[str, list[float]] = {}

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measures a block: one round."""
        self.store.spans.clear()
        started = time.process_time()
        try:
            yield
        finally:
            self._cpu_s = time.process_time() - started
            for span in self.store.spans:
                self._durations.setdefault(span.name, []).append((span.end - span.start) * 1000)

    def told(self, *, files: int, ceiling: float | None = None) -> dict[str, Any]:
        """What was measured, for `extra_info` of a benchmark; durations are those of the most frequent call."""
        spans = self.store.spans
        calls = Counter(span.name for span in spans)
        most = calls.most_common(1)[0][0]
        durations = sorted(self._durations[most])
        return {
            "files": files,
            "calls": dict(calls),
            "round_trips": round_trips(spans),
            "call": most,
            "p50_ms": durations[len(durations) // 2],
            "p99_ms": durations[len(durations) * 99 // 100],
            "cpu_us_per_file": self._cpu_s / files * 1e6,
            "ceiling_calls_per_s": ceiling,
        }


def cells(name: str, told: dict[str, Any]) -> tuple[str, ...]:
    """One line of a table with `HEADINGS`."""
    ceiling = told["ceiling_calls_per_s"]
    return (
        name,
        f"{told['files']:,}",
        f"{sum(told['calls'].values()):,}",
        f"{told['round_trips']:,}",
        f"{told['p50_ms']:.2f}",
        f"{told['p99_ms']:.2f}",
        f"{told['cpu_us_per_file']:.1f}",
        f"{ceiling:,.0f}" if ceiling else "",
    )


async def ceiling(place: Place, calls: int) -> float:
    """What the store itself can do: looks at one file, `WORKERS` at a time, in calls a second."""
    directory = destination(place)
    await place.store.make_directory(directory, parents=True)
    path = (await place.store.put(directory / "looked-at", b"x")).path

    async def look(_number: int) -> None:
        await place.store.status(path)

    started = time.perf_counter()
    await run_workers(range(calls), look, workers=WORKERS)
    return calls / (time.perf_counter() - started)
