"""Kills processes at drawn store calls, on every store, and ends their jobs: `python -m tests.processes.kill_series`.

A seed draws the store, the committer, which process dies, and the number of its store call. A driver runs a job and dies; a
recoverer or a cleanup that acts on what a dead driver left dies, too. Calls are under way when a process dies. A fresh process
then ends the job, and another job runs under its id. The destination must hold what the job committed, or what was there
before it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import committer
from committer import CommitterConfig
from committer.errors import (
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    JobUndecidedError,
    TaskError,
)
from committer.paths import StorePath
from committer.stores.registry import open_store
from committer.testing.faults import Call, FaultyStore
from committer_testing.emulators import adls, gcs
from committer_testing.simulate.markers import is_same_marker
from tests.azure_blob import azurite
from tests.azure_blob.container import ContainerChannel
from tests.hdfs.channel import JavaChannel
from tests.hdfs.cluster import Cluster, jars
from tests.interop.jvm import Jvm
from tests.processes.harness import TIMEOUT_S
from tests.s3 import bucket, servers
from tests.stores import adls_account, gcs_bucket
from tests.stores.channels import DiskChannel

JOB = "J"
TASKS, FILES = 2, 6
KINDS = ("driver", "recoverer", "cleanup")
OLD = {"p=0/old": b"old", "other/kept": b"kept"}
EARLIER_SUCCESS = b'{"jobId": "earlier"}'
CLEANUP_CALLS = 25
# Forked from a process that holds the imports already, and no thread.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.processes.kill_series"])
_ATTEMPT = re.compile(r"-attempt_[^/]*?_m_\d+_\d+-[0-9a-f]+")


@dataclass(frozen=True)
class Choices:
    """Choices of a run.

    Attributes:
        committer: The committer's name.
        disk: Where a staging committer keeps the files of its task attempts.
        replaces: Whether the job replaces the old files of the directories that it writes into.
        promotes: Whether each task writes into directories of its own, which are renamed as a whole.
        rollback: Whether the job is ended by a rollback, and cleaned up by an abort.
        forced: Whether a rollback needs the word that no other driver is alive.
        commits: Whether a job that no driver began to commit is committed; else it is cleaned up.
        marked: Whether an earlier job left `_SUCCESS`.
        dies_at: The number of the store call before which the process dies; 0 for none.
    """

    committer: str
    disk: str
    replaces: bool = False
    promotes: bool = False
    rollback: bool = False
    forced: bool = False
    commits: bool = False
    marked: bool = False
    dies_at: int = 0

    @property
    def config(self) -> CommitterConfig:
        return CommitterConfig(
            io_concurrency=4,
            conflict_mode="replace" if self.replaces else "append",
            promote_directories=self.promotes or None,
            staging_directories=(self.disk,) if self.committer == "directory" else (),
        )

    def files_of(self, task: int) -> dict[str, bytes]:
        above = f"t={task}/" if self.promotes else ""
        numbers = range(task * FILES, (task + 1) * FILES)
        return {f"{above}p={number % 3}/part-{number}": b"%d" % number * (number % 5) for number in numbers}

    @property
    def complete(self) -> dict[str, bytes]:
        """Every file once the job is committed."""
        new = {name: data for task in range(TASKS) for name, data in self.files_of(task).items()}
        written = {name.rpartition("/")[0] for name in new}
        if not self.replaces:
            return {**OLD, **new}
        # `directory` replaces the whole destination.
        kept = {} if self.committer == "directory" else OLD
        return {**{name: data for name, data in kept.items() if name.rpartition("/")[0] not in written}, **new}


def act(told: Any, kind: str, uri: str, options: dict[str, object], secrets: dict[str, str], choices: Choices) -> None:
    """Is the process of a kind: dies at its call, else tells how many calls it made, and before its commit."""
    os.environ.update(secrets)
    store = FaultyStore(open_store(StorePath.of(uri), options))

    async def die(call: Call) -> None:
        if call.number == choices.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store.before_call = die
    before_commit = asyncio.run(_act(kind, uri, store, choices))
    told.send((len(store.calls), before_commit))


async def _act(kind: str, uri: str, store: FaultyStore, choices: Choices) -> int:
    try:
        # The job may be over, or no driver have begun to commit it.
        with suppress(JobStateError, JobNotFoundError):
            return await _act_on(kind, uri, store, choices)
        return 0
    finally:
        await store.close()


async def _act_on(kind: str, uri: str, store: FaultyStore, choices: Choices) -> int:
    own: dict[str, Any] = {"config": choices.config, "storage_options": {"store": store}}
    before_commit = 0
    if kind == "driver":
        async with committer.open_job(uri, job_id=JOB, committer=choices.committer, **own) as job:
            async with asyncio.TaskGroup() as tasks:
                for task in range(TASKS):
                    tasks.create_task(_run(job, task, choices.files_of(task)))
            before_commit = len(store.calls)
            await job.commit(tasks=TASKS)
    elif kind == "recoverer":
        await committer.recover(uri, JOB, rollback=choices.rollback, force=choices.rollback and choices.forced, **own)
    elif choices.rollback:
        async with committer.attach_job(uri, job_id=JOB, **own) as job:
            await job.abort()
    else:
        await committer.cleanup(uri, job_id=JOB, **own)
    return before_commit


async def _run(job: committer.Job, task: int, files: Mapping[str, bytes]) -> None:
    async with job.task_attempt(task) as attempt:
        for name, data in files.items():
            async with attempt.open(name) as file:
                await file.write(data)


@dataclass
class Place:
    """A store.

    Attributes:
        root: Where runs have their directories.
        options: How to reach it; secrets are references.
        channel: Gives the way to the files of a directory past the store.
        disk: A directory of this machine.
        secrets: What the references stand for, as environment variables.
        committers: Those that jobs have there.
        promotes: Whether directories can be renamed as a whole.
        forced: Whether a rollback keeps no other driver out.
    """

    root: StorePath
    options: dict[str, Any]
    channel: Callable[[StorePath], Any]
    disk: Path
    secrets: dict[str, str] = field(default_factory=dict)
    committers: Sequence[str] = ("manifest",)
    promotes: bool = False
    forced: bool = False

    _calls: dict[tuple[str, bool], tuple[int, int]] = field(default_factory=dict)

    async def calls(self, choices: Choices) -> tuple[int, int]:
        """How many store calls an undisturbed driver makes, and before its commit."""
        key = choices.committer, choices.promotes
        if key not in self._calls:
            told, tells = _processes.Pipe(duplex=False)
            undisturbed = Choices(choices.committer, choices.disk, promotes=choices.promotes)
            root = self.root / f"undisturbed-{len(self._calls)}"
            assert not await self.dies("driver", root.uri, undisturbed, tells)
            self._calls[key] = told.recv()
        return self._calls[key]

    async def dies(self, kind: str, uri: str, choices: Choices, tells: Any = None) -> bool:
        """Runs a process; whether it died at its call."""
        _told, own = _processes.Pipe(duplex=False)
        orders = (tells or own, kind, uri, self.options, self.secrets, choices)
        process = _processes.Process(target=act, args=orders)
        process.start()
        await asyncio.to_thread(process.join, TIMEOUT_S)
        assert process.exitcode in (0, -signal.SIGKILL), f"a {kind} ended with {process.exitcode}"
        return process.exitcode != 0


async def run(place: Place, seed: int, kind: str, name: str) -> tuple[bool, str]:
    """Runs a committer once; returns whether the process died, and the faults at the end."""
    draw = random.Random(f"kill {seed}")
    root = place.root / str(seed)
    channel, uri = place.channel(root), root.uri
    choices = Choices(
        name,
        str(place.disk / str(seed)),
        # The tasks of `stocator` write among the old files, so that it replaces none.
        replaces=draw.random() < 0.4 and name != "stocator",
        promotes=draw.random() < 0.4 and place.promotes and name == "manifest",
        rollback=draw.random() < 0.4,
        forced=place.forced or name == "stocator",
        commits=draw.random() < 0.5,
        marked=draw.random() < 0.5,
    )
    for old, data in (OLD | ({"_SUCCESS": EARLIER_SUCCESS} if choices.marked else {})).items():
        await channel.write(old, data)
    calls, before_commit = await place.calls(choices)
    first = before_commit if kind == "recoverer" else 1
    died = await place.dies("driver", uri, replace(choices, dies_at=draw.randrange(first, calls)))
    if kind != "driver":
        most = calls - before_commit if kind == "recoverer" else CLEANUP_CALLS
        died = await place.dies(kind, uri, replace(choices, dies_at=draw.randrange(1, most)))
    return died, "; ".join(await _ended(place, root, choices, kind))


async def _ended(place: Place, root: StorePath, choices: Choices, kind: str) -> list[str]:
    """Ends the job in this process; what is wrong then."""
    channel, uri = place.channel(root), root.uri
    options = {"config": choices.config, "storage_options": place.options}
    states = {job.state for job in await committer.list_jobs(uri, **options)}
    told = await _end(uri, options, choices, rollback=choices.rollback and kind != "cleanup")
    for _look in range(3):
        left = await committer.cleanup(uri, older_than=0.01, **options)
        if not left.kept:
            break
        await asyncio.sleep(0.5)
    files = await channel.files()
    if choices.committer == "file-v1" and left.kept.keys() == {"0"}:
        # Directories that jobs of Hadoop share, of which no file is left.
        left = await committer.cleanup(uri, job_id="0", force=True, **options)
    marker = files.pop("_SUCCESS", b"{}")
    marked = json.loads(marker).get("jobId")
    found = files
    if choices.committer == "stocator" and marked == JOB:
        named = (await committer.list_winners(uri, storage_options=place.options)).files
        winners = {StorePath.from_uri(file.path).relative_to(root) for file in named}
        found = {_ATTEMPT.sub("", name) if name in winners else name: data for name, data in files.items()}
    committed = found == choices.complete
    uploads = await channel.uploads() if isinstance(channel, bucket.BucketChannel) else []
    waiting = await channel.waiting() if isinstance(channel, ContainerChannel) else {}
    # What was begun and not listed yet has no part, and costs nothing.
    pending = [upload for upload in uploads if await channel.parts(*upload)]
    directories = await channel.directories()
    on_disk = [path.name for path in Path(choices.disk).rglob("*") if path.is_file()]
    earlier = EARLIER_SUCCESS if choices.marked else b"{}"
    wrong = {
        f"it holds {sorted(found)}": not committed and found != OLD,
        f"the job is said to have {'committed' if told else 'not committed'}": told is not None and told != committed,
        f"_SUCCESS is {marker!r}": marked != JOB if committed else not is_same_marker(marker, earlier),
        f"it was {states}": bool(states & {"committing", "committed"}) and not choices.rollback and not committed,
        f"left {left.kept}": bool(left.kept),
        f"left {directories}": any("_temporary" in name for name in directories),
        f"uploads are pending: {pending}": bool(pending),
        f"blocks wait: {waiting}": bool(waiting) and (committed or "committing" in states),
        # A cleanup that died may have deleted the records that say which files on a disk are the job's.
        f"on this machine: {on_disk}": bool(on_disk) and (kind == "driver" or "committing" in states),
    }
    async with committer.open_job(uri, job_id=JOB, storage_options=place.options) as job, job.task_attempt(0) as task:
        async with task.open("again") as file:
            await file.write(b"again")
    wrong["the next job of the id changed something"] = (await channel.files()).keys() - {"_SUCCESS"} != {
        *files,
        "again",
    }
    return [what for what, is_so in wrong.items() if is_so]


async def _end(uri: str, options: dict[str, Any], choices: Choices, *, rollback: bool) -> bool | None:
    """Ends the job in this process: whether it committed; None where nothing is known of it."""
    try:
        return (
            await committer.recover(uri, JOB, rollback=rollback, force=rollback and choices.forced, **options)
        ).success
    except JobNotFoundError:
        return None
    except JobUndecidedError:
        return (choices.commits and not rollback and await _commit(uri, options)) or await _clean_up(uri, options)
    except JobDecidedError:
        return await _clean_up(uri, options)
    except JobRolledBackError:
        pass
    except JobStateError:
        if not rollback:
            raise
        # It had an outcome: only forward from there.
        return await _end(uri, options, choices, rollback=False)
    return False


async def _commit(uri: str, options: dict[str, Any]) -> bool:
    """Commits what the tasks of a dead driver left; whether all of them had committed."""
    async with committer.attach_job(uri, job_id=JOB, **options) as job:
        try:
            messages = [await job.recover_task(task, 0) for task in range(TASKS)]
        except TaskError:
            return False
        return (await job.commit(messages, tasks=TASKS)).success


async def _clean_up(uri: str, options: dict[str, Any]) -> bool:
    await committer.cleanup(uri, job_id=JOB, **options)
    return False


@asynccontextmanager
async def local(directory: Path) -> AsyncIterator[Place]:
    root = StorePath.of(directory / "tables")
    yield Place(root, {}, DiskChannel, directory, committers=("manifest", "file-v1"), promotes=True)


@asynccontextmanager
async def hdfs(directory: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        jvm = Jvm(directory, jars())
        stack.callback(jvm.close)
        cluster = Cluster(jvm, directory / "hdfs")
        stack.callback(cluster.close)
        root = StorePath("hdfs", cluster.authority, "/kill")
        yield Place(root, {}, lambda root: JavaChannel(cluster, root), directory, promotes=True)


@asynccontextmanager
async def seaweedfs(directory: Path) -> AsyncIterator[Place]:
    with servers.seaweedfs(directory) as server:
        yield Place(
            StorePath("s3", servers.BUCKET, "/kill"),
            bucket.options_for(server),
            lambda root: bucket.BucketChannel(server.client, root),
            directory,
            {bucket.KEY_ID_IS_IN: servers.KEY_ID, bucket.KEY_IS_IN: servers.KEY},
            ("magic", "directory", "stocator"),
        )


@asynccontextmanager
async def on_azurite(directory: Path) -> AsyncIterator[Place]:
    with azurite.azurite(directory) as server:
        yield Place(
            StorePath("az", azurite.CONTAINER, "/kill"),
            server.options(),
            lambda root: ContainerChannel(server, root),
            directory,
            {azurite.KEY_IS_IN: azurite.KEY},
            ("block-list",),
        )


@asynccontextmanager
async def on_adls(directory: Path) -> AsyncIterator[Place]:
    async with adls.serve() as account:
        adls_account.put_files(account)
        yield Place(
            adls_account.ROOT,
            {"endpoint": account.dfs_url, "account_key": "env:ADLS_KEY"},
            lambda root: adls_account.AccountChannel(account, root),
            directory,
            {"ADLS_KEY": account.settings.key},
            promotes=True,
        )


@asynccontextmanager
async def on_gcs(directory: Path) -> AsyncIterator[Place]:
    async with gcs.serve() as google:
        google.make_bucket("data")
        yield Place(
            gcs_bucket.ROOT,
            {"endpoint": google.url},
            lambda root: gcs_bucket.BucketChannel(google, root),
            directory,
            forced=True,
        )


PLACES: Mapping[str, Callable[[Path], AbstractAsyncContextManager[Place]]] = {
    "local": local,
    "hdfs": hdfs,
    "seaweedfs": seaweedfs,
    "azurite": on_azurite,
    "adls": on_adls,
    "gcs": on_gcs,
}
"""Every store, each on a server of its own."""


@asynccontextmanager
async def place_of(store: str, directory: Path) -> AsyncIterator[Place]:
    """A store that runs, with its secrets in the environment."""
    directory.mkdir(parents=True, exist_ok=True)
    async with PLACES[store](directory) as place:
        with patch.dict(os.environ, place.secrets):
            yield place


async def tried(place: Place, seed: int, kind: str, name: str) -> tuple[bool, str]:
    """The same as `run`, which may raise."""
    try:
        return await run(place, seed, kind, name)
    except Exception as error:
        return True, f"{type(error).__name__}: {error}"


async def main(first: int, runs: int, only: str) -> bool:
    """Runs a series, and prints what was wrong and a table."""
    done, wrong = Counter[tuple[str, str]](), Counter[str]()
    began, killed, seed = time.monotonic(), 0, first
    names = [only] if only else list(PLACES)
    with tempfile.TemporaryDirectory() as directory:
        async with AsyncExitStack() as stack:
            places = {name: await stack.enter_async_context(place_of(name, Path(directory) / name)) for name in names}
            rows = [f"{name}, {kind}" for name, place in places.items() for kind in place.committers]
            while killed < runs:
                draw = random.Random(f"place {seed}")
                row, kind = draw.choice(rows), draw.choice(KINDS)
                store, _, name = row.partition(", ")
                died, problem = await tried(places[store], seed, kind, name)
                done[row, kind] += died
                killed += died
                if problem:
                    wrong[row] += 1
                    print(f"seed {seed}, {row}, {kind}: {problem}", flush=True)
                seed += 1
                if seed % 25 == 0:
                    print(
                        f"seed {seed}: {killed} killed, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True
                    )
    print(f"seeds {first} to {seed - 1}, {killed} killed, {time.monotonic() - began:.0f} s\n")
    print("| store, committer | " + " | ".join(KINDS) + " | wrong |\n|---|" + "---|" * (len(KINDS) + 1))
    for row in rows:
        print(f"| {row} | " + " | ".join(str(done[row, kind]) for kind in KINDS), end=f" | {wrong[row]} |\n")
    return not wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kills processes at drawn store calls, and ends their jobs.")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=500, help="how many processes are to die")
    parser.add_argument("--only", default="", help="one store: local, hdfs, seaweedfs, azurite, adls, gcs")
    given = parser.parse_args()
    # Each process finds this module imported already.
    os.environ["PYTHONWARNINGS"] = "ignore::RuntimeWarning"
    sys.exit(not asyncio.run(main(given.start, given.runs, given.only)))
