"""A destination with jobs in every state, on a service behind a hostile proxy, and all that a person may ask of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import committer
from committer.errors import StoreNotFoundError
from committer.flow.runtime import Timer
from committer.paths import StorePath
from committer.stores.registry import open_store
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from committer_testing.emulators import adls, gcs
from tests.hostile.proxy import HostileProxy, hostile_proxy
from tests.s3.servers import BUCKET, KEY, KEY_ID
from tests.short_waits import ShortWaits
from tests.stores import adls_account, gcs_bucket

T = TypeVar("T")


def files_of(job_id: str) -> dict[str, bytes]:
    """The files of a job, by name."""
    return {f"a={number}/{job_id}.csv": f"{job_id} {number}".encode() for number in range(2)}


CHOICES: dict[str, Any] = {"io_rate": 0}


class NoWaits(ShortWaits):
    """As `ShortWaits`; a timer that goes off late, as when a service asks for minutes, goes off at once."""

    async def sleep(self, seconds: float) -> None:
        """Waits a hundredth of what `ShortWaits` does."""
        self._ahead_s += seconds * 0.99
        await super().sleep(seconds / 100)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """A timer that moves the clocks where it goes off."""

        def go_off() -> None:
            self._ahead_s += seconds
            callback()

        return super().call_later(min(seconds, 0.001), go_off)


class Background:
    """An event loop in a thread, where servers run while a test blocks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servers", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Service:
    """A service, and the proxy before it.

    Attributes:
        root: Where tests have their directories.
        proxy: The proxy.
        direct: Storage options that reach the service past the proxy.
        options: Those that go through it.
    """

    def __init__(self, root: StorePath, proxy: HostileProxy, direct: dict[str, object], endpoint: str) -> None:
        self.root = root
        self.proxy = proxy
        self.direct = direct
        self.options = {**direct, endpoint: str(direct[endpoint]).replace(proxy.upstream, proxy.url)}

    @property
    def words(self) -> list[str]:
        """The same on a command line; keys are in the environment."""
        keys = {"account_key": "env:HOSTILE_KEY", "secret_access_key": "env:HOSTILE_KEY", "access_key_id": KEY_ID}
        given = {name: keys.get(name, value) for name, value in self.options.items()}
        return [word for name, value in given.items() for word in ("--storage", f"{name}={value}")]


@asynccontextmanager
async def serve(kind: str, moto_url: str) -> AsyncIterator[Service]:
    """Serves one of ``s3``, ``adls`` and ``gs`` while the block runs."""
    async with AsyncExitStack() as stack:
        if kind == "s3":
            proxy = await stack.enter_async_context(hostile_proxy(moto_url))
            keys: dict[str, object] = {"access_key_id": KEY_ID, "secret_access_key": KEY, "region": "us-east-1"}
            yield Service(StorePath("s3", BUCKET, "/t"), proxy, {"endpoint_url": moto_url, **keys}, "endpoint_url")
        elif kind == "adls":
            account = await stack.enter_async_context(adls.serve())
            adls_account.put_files(account)
            upstream = "/".join(account.dfs_url.split("/")[:3])
            proxy = await stack.enter_async_context(hostile_proxy(upstream))
            direct: dict[str, object] = {"endpoint": account.dfs_url, "account_key": account.settings.key}
            yield Service(adls_account.ROOT, proxy, direct, "endpoint")
        else:
            service = await stack.enter_async_context(gcs.serve())
            service.make_bucket("data")
            proxy = await stack.enter_async_context(hostile_proxy(service.url))
            yield Service(gcs_bucket.ROOT, proxy, {"endpoint": service.url}, "endpoint")


@contextmanager
def background(kind: str, moto_url: str) -> Iterator[tuple[Background, Service]]:
    """A service in a thread."""
    loop = Background()
    stack = AsyncExitStack()
    try:
        service = loop.run(stack.enter_async_context(serve(kind, moto_url)))
        yield loop, service
    finally:
        loop.run(stack.aclose())
        loop.close()


async def write(job: committer.Job) -> None:
    for number, (name, data) in enumerate(files_of(job.spec.job_id).items()):
        async with job.task_attempt(task=number) as task, task.open(name) as file:
            await file.write(data)


async def job_of(dest: StorePath, options: dict[str, object], job_id: str) -> None:
    """Runs a whole job."""
    async with committer.open_job(dest, job_id=job_id, config=CHOICES, storage_options=options) as job:
        await write(job)
        await job.commit(tasks=2)


async def open_left(dest: StorePath, options: dict[str, object], job_id: str) -> None:
    """Leaves a job whose tasks committed, and whose driver died."""
    job = await committer.open_job(dest, job_id=job_id, config=CHOICES, storage_options=options)
    await write(job)
    await job.close()


async def decided_left(dest: StorePath, options: dict[str, object], job_id: str) -> None:
    """Leaves a job whose driver died when it began to publish."""
    store = FaultyStore(open_store(dest, options))
    given: dict[str, object] = {"store": store}
    try:
        job = await committer.open_job(dest, job_id=job_id, config=CHOICES, storage_options=given)
        await write(job)
        publishing = "complete_upload" if store.capabilities.multipart else "rename_file"
        store.faults = [Fault(kind="crash_before", operation=publishing)]
        try:
            await job.commit(tasks=2)
        except SimulatedCrash:
            pass
        else:
            raise AssertionError("the driver did not die")
    finally:
        await store.inner.close()


async def visible(dest: StorePath, options: dict[str, object]) -> dict[str, bytes]:
    """Reads the visible files of a destination, past the proxy."""
    found: dict[str, bytes] = {}
    store = open_store(dest, options)

    async def look(directory: StorePath) -> None:
        async for status in store.list(directory):
            name = status.path.path.removeprefix(f"{dest.path}/")
            if name.startswith("_"):
                continue
            if status.is_directory:
                await look(status.path)
            else:
                found[name] = await store.read(status.path, limit=1000)

    try:
        await look(dest)
    except StoreNotFoundError:
        pass
    finally:
        await store.close()
    return found
