"""Kills processes at drawn store calls, on every store, and ends their jobs: `python -m tests.processes.kill_series`.

A seed draws the store, which process dies, and the number of its store call. A driver runs a job and dies; a recoverer or a
cleanup that acts on what a dead driver left dies, too. Calls are under way when a process dies. A fresh process then ends the
job, and another job runs under its id. The destination must hold what the job committed, or what was there before it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import committer
from committer import CommitterConfig
from committer.errors import JobDecidedError, JobNotFoundError, JobRolledBackError, JobStateError, JobUndecidedError
from committer.paths import StorePath
from committer.stores.registry import open_store
from committer.testing.faults import Call, FaultyStore
from committer_testing.emulators import adls, gcs
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
# Forked from a process that holds the imports already, and no thread.
_processes = multiprocessing.get_context("forkserver")
KINDS = ("driver", "recoverer", "cleanup")
OLD = {"p=0/old": b"old", "other/kept": b"kept"}
NEW = {f"p={number % 3}/part-{number}": b"%d" % number * number for number in range(TASKS * FILES)}
CLEANUP_CALLS = 25


def act(told: Any, kind: str, uri: str, options: dict[str, object], dies_at: int, choices: dict[str, bool]) -> None:
    """Is the process of a kind: dies before its store call `dies_at`, else tells how many it made, and before its commit."""
    store = FaultyStore(open_store(StorePath.of(uri), options))

    async def die(call: Call) -> None:
        if call.number == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store.before_call = die
    before_commit = asyncio.run(_act(kind, uri, store, choices))
    told.send((len(store.calls), before_commit))


async def _act(kind: str, uri: str, store: FaultyStore, choices: dict[str, bool]) -> int:
    try:
        # The job may be over, or no driver have begun to commit it.
        with suppress(JobStateError, JobNotFoundError):
            return await _act_on(kind, uri, store, choices)
        return 0
    finally:
        await store.close()


async def _act_on(kind: str, uri: str, store: FaultyStore, choices: dict[str, bool]) -> int:
    own: dict[str, Any] = {"storage_options": {"store": store}}
    before_commit = 0
    if kind == "driver":
        config = CommitterConfig(io_concurrency=4, conflict_mode="replace" if choices["replaces"] else "append")
        async with committer.open_job(uri, job_id=JOB, config=config, **own) as job:
            async with asyncio.TaskGroup() as tasks:
                for task in range(TASKS):
                    tasks.create_task(_run(job, task))
            before_commit = len(store.calls)
            await job.commit(tasks=TASKS)
    elif kind == "recoverer":
        await committer.recover(uri, JOB, rollback=choices["rollback"], force=choices["rollback"], **own)
    elif choices["rollback"]:
        async with committer.attach_job(uri, job_id=JOB, **own) as job:
            await job.abort()
    else:
        await committer.cleanup(uri, job_id=JOB, **own)
    return before_commit


async def _run(job: committer.Job, task: int) -> None:
    async with job.task_attempt(task) as attempt:
        for name, data in list(NEW.items())[task * FILES : (task + 1) * FILES]:
            async with attempt.open(name) as file:
                await file.write(data)


@dataclass
class Place:
    """A store.

    Attributes:
        root: Where runs have their directories.
        options: How to reach it; secrets are references.
        channel: Gives the way to the files of a directory past the store.
        calls: How many calls an undisturbed driver makes, and before its commit.
    """

    root: StorePath
    options: dict[str, Any]
    channel: Callable[[StorePath], Any]

    calls: tuple[int, int] = (2, 0)

    async def measure(self) -> None:
        """Counts the store calls of an undisturbed driver."""
        choices = {"replaces": True, "rollback": False}
        told, tells = _processes.Pipe(duplex=False)
        assert not await self.dies("driver", (self.root / "undisturbed").uri, 0, choices, tells)
        self.calls = told.recv()

    async def dies(self, kind: str, uri: str, dies_at: int, choices: dict[str, bool], tells: Any = None) -> bool:
        """Runs a process; whether it died at its call."""
        _told, own = _processes.Pipe(duplex=False)
        process = _processes.Process(target=act, args=(tells or own, kind, uri, self.options, dies_at, choices))
        process.start()
        await asyncio.to_thread(process.join, TIMEOUT_S)
        assert process.exitcode in (0, -signal.SIGKILL), f"a {kind} ended with {process.exitcode}"
        return process.exitcode != 0


async def run(place: Place, seed: int, kind: str) -> tuple[bool, str]:
    """One run: whether the process of that kind died, and what is wrong at its end."""
    draw = random.Random(f"kill {seed}")
    root = place.root / str(seed)
    channel, uri, options = place.channel(root), root.uri, {"storage_options": place.options}
    for name, data in OLD.items():
        await channel.write(name, data)
    choices = {"replaces": draw.random() < 0.4, "rollback": draw.random() < 0.4}
    calls, before_commit = place.calls
    died = await place.dies("driver", uri, draw.randrange(before_commit if kind == "recoverer" else 1, calls), choices)
    if kind != "driver":
        most = calls - before_commit if kind == "recoverer" else CLEANUP_CALLS
        died = await place.dies(kind, uri, draw.randrange(1, most), choices)
    states = {job.state for job in await committer.list_jobs(uri, **options)}
    told = await _end(uri, options, rollback=choices["rollback"] and kind != "cleanup")
    for _look in range(3):
        left = await committer.cleanup(uri, older_than=0.01, **options)
        if not left.kept:
            break
        await asyncio.sleep(0.5)
    found = await channel.files()
    marker = json.loads(found.pop("_SUCCESS", b"{}")).get("jobId")
    kept = {name: data for name, data in OLD.items() if not (choices["replaces"] and name.startswith("p="))}
    committed = found == {**kept, **NEW}
    uploads = await channel.uploads() if isinstance(channel, bucket.BucketChannel) else []
    # What was begun and not listed yet has no part, and costs nothing.
    pending = [upload for upload in uploads if await channel.parts(*upload)]
    wrong = [
        what
        for what, is_so in {
            f"it holds {sorted(found)}": not committed and found != OLD,
            f"the job is said to have {'committed' if told else 'not committed'}": told is not None
            and told != committed,
            f"_SUCCESS names {marker}": marker != (JOB if committed else None),
            f"it was {states}": bool(states & {"committing", "committed"})
            and not choices["rollback"]
            and not committed,
            f"left {left.kept}": bool(left.kept),
            f"left {await channel.directories()}": any("_temporary" in name for name in await channel.directories()),
            f"uploads are pending: {pending}": bool(pending),
        }.items()
        if is_so
    ]
    async with committer.open_job(uri, job_id=JOB, **options) as job, job.task_attempt(0) as task:
        async with task.open("again") as file:
            await file.write(b"again")
    if (await channel.files()).keys() - {"_SUCCESS"} != {*found, "again"}:
        wrong.append("the next job of the id changed something")
    return died, "; ".join(wrong)


async def _end(uri: str, options: dict[str, Any], *, rollback: bool) -> bool | None:
    """Ends the job in this process: whether it committed; None where nothing is known of it."""
    try:
        return (await committer.recover(uri, JOB, rollback=rollback, force=rollback, **options)).success
    except JobNotFoundError:
        return None
    except (JobUndecidedError, JobDecidedError):
        await committer.cleanup(uri, job_id=JOB, **options)
    except JobRolledBackError:
        pass
    except JobStateError:
        if not rollback:
            raise
        # It had an outcome: only forward from there.
        return await _end(uri, options, rollback=False)
    return False


@asynccontextmanager
async def places(directory: Path) -> AsyncIterator[dict[str, Place]]:
    """Every store, each on a server of its own."""
    async with AsyncExitStack() as stack:
        s3 = stack.enter_context(servers.seaweedfs(_made(directory / "s3")))
        blob = stack.enter_context(azurite.azurite(_made(directory / "azurite")))
        account = await stack.enter_async_context(adls.serve())
        adls_account.put_files(account)
        google = await stack.enter_async_context(gcs.serve())
        google.make_bucket("data")
        jvm = Jvm(_made(directory / "jvm"), jars())
        stack.callback(jvm.close)
        cluster = Cluster(jvm, _made(directory / "hdfs"))
        stack.callback(cluster.close)
        os.environ.update({bucket.KEY_ID_IS_IN: servers.KEY_ID, bucket.KEY_IS_IN: servers.KEY})
        os.environ.update({azurite.KEY_IS_IN: azurite.KEY, "ADLS_KEY": account.settings.key})
        yield {
            "local": Place(StorePath.of(_made(directory / "local")), {}, DiskChannel),
            "hdfs": Place(StorePath("hdfs", cluster.authority, "/kill"), {}, lambda root: JavaChannel(cluster, root)),
            "seaweedfs": Place(
                StorePath("s3", servers.BUCKET, "/kill"),
                bucket.options_for(s3),
                lambda root: bucket.BucketChannel(s3.client, root),
            ),
            "azurite": Place(
                StorePath("az", azurite.CONTAINER, "/kill"), blob.options(), lambda root: ContainerChannel(blob, root)
            ),
            "adls": Place(
                adls_account.ROOT,
                {"endpoint": account.dfs_url, "account_key": "env:ADLS_KEY"},
                lambda root: adls_account.AccountChannel(account, root),
            ),
            "gcs": Place(
                gcs_bucket.ROOT, {"endpoint": google.url}, lambda root: gcs_bucket.BucketChannel(google, root)
            ),
        }


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


async def main(first: int, runs: int, only: str) -> bool:
    """Runs a series, and prints what was wrong and a table."""
    done, wrong = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    began, killed, seed = time.monotonic(), 0, first
    with tempfile.TemporaryDirectory() as directory:
        async with places(Path(directory)) as all_places:
            names = [only] if only else list(all_places)
            _processes.set_forkserver_preload(["tests.processes.kill_series"])
            for name in names:
                await all_places[name].measure()
            while killed < runs:
                draw = random.Random(f"place {seed}")
                name, kind = draw.choice(names), draw.choice(KINDS)
                try:
                    died, problem = await run(all_places[name], seed, kind)
                except Exception as error:
                    died, problem = True, f"{type(error).__name__}: {error}"
                done[name, kind] += died
                killed += died
                if problem:
                    wrong[name, kind] += 1
                    print(f"seed {seed}, {name}, {kind}: {problem}", flush=True)
                seed += 1
                if seed % 25 == 0:
                    print(
                        f"seed {seed}: {killed} killed, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True
                    )
    print(f"seeds {first} to {seed - 1}, {killed} killed, {time.monotonic() - began:.0f} s\n")
    print("| store | " + " | ".join(KINDS) + " | wrong |\n|---|" + "---|" * (len(KINDS) + 1))
    for name in names:
        print(f"| {name} | " + " | ".join(str(done[name, kind]) for kind in KINDS), end=" | ")
        print(f"{sum(wrong[name, kind] for kind in KINDS)} |")
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
