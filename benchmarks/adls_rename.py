"""What one rename on Azure Data Lake Storage costs the client: this store beside the official client.

    uv run --extra adls benchmarks/adls_rename.py [--renames 4000] [--concurrency 64] [--rounds 3] [--json FILE]

Renames of empty files on the emulator, which runs in a process of its own: the store without the engine, by account
key, with the source's etag and `If-None-Match: *`, on asyncio's loop and on uvloop, with and without TLS; and
`DataLakeFileClient.rename_file` of azure-storage-file-datalake, a client for each file as applications do. They take
turns in each round. What counts is CPU time of this process a rename: the rate is the emulator's as much as the
client's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer.testing.emulators.adls import DEFAULT_KEY

NAME = "adls-rename"
ROOT = StorePath("abfss", "data@devstoreaccount1.dfs.core.windows.net", "/bench")

CASES = (
    # name, uvloop, TLS, official client
    ("store, uvloop", True, False, False),
    ("store, asyncio", False, False, False),
    ("store, uvloop, TLS", True, True, False),
    ("store, asyncio, TLS", False, True, False),
    ("official client, asyncio", False, False, True),
)


@contextmanager
def emulator(*arguments: str) -> Iterator[str]:
    """Its URL, while the block runs."""
    command = [sys.executable, "-m", "committer.testing.emulators.adls", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def certificate(directory: str) -> str:
    """A certificate for 127.0.0.1 with its key, in one file."""
    path = str(Path(directory) / "tls.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", f"{path}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    Path(path).write_bytes(Path(path).read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


async def each(count: int, concurrency: int, call: Callable[[int], Awaitable[object]]) -> None:
    """Makes a call for every number, so many at once."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(work() for _ in range(concurrency)))


@asynccontextmanager
async def store_at(url: str, trusted: str | None) -> AsyncIterator[AdlsStore]:
    """The store, with a session that trusts the emulator's certificate where there is one."""
    options: dict[str, Any] = {"endpoint": url, "account_key": DEFAULT_KEY}
    if trusted is None:
        store = AdlsStore.open_for(ROOT, options)
        yield store
        await store.close()
        return
    connector = aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context(cafile=trusted))
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield AdlsStore.open_for(ROOT, {**options, "session": session})


async def measure(url: str, renames: int, concurrency: int, trusted: str | None, official: bool) -> dict[str, float]:
    """CPU and wall time of so many renames."""
    async with store_at(url, trusted) as store:
        await _prepare(store, url, trusted)
        identities: list[str | None] = [None] * renames

        async def create(number: int) -> None:
            identities[number] = (await store.put(ROOT / f"year=2026/{number}", b"")).identity

        await each(renames, concurrency, create)

        async def ours(number: int) -> None:
            await store.rename_file(ROOT / f"year=2026/{number}", ROOT / f"to/{number}", identity=identities[number])

        if not official:
            return await _timed(renames, concurrency, ours)
        from azure.storage.filedatalake.aio import DataLakeServiceClient

        async with DataLakeServiceClient(url, credential=DEFAULT_KEY) as service:

            async def theirs(number: int) -> None:
                file = service.get_file_client("data", f"bench/year=2026/{number}")
                await file.rename_file(f"data/bench/to/{number}")

            return await _timed(renames, concurrency, theirs)


async def _prepare(store: AdlsStore, url: str, trusted: str | None) -> None:
    from azure.core.exceptions import ResourceExistsError
    from azure.storage.filedatalake.aio import DataLakeServiceClient

    verify = {} if trusted is None else {"connection_verify": trusted}
    async with DataLakeServiceClient(url, credential=DEFAULT_KEY, **verify) as service:
        try:
            await service.create_file_system("data")
        except ResourceExistsError:
            await store.delete_directory(ROOT, recursive=True)
    await store.make_directory(ROOT / "to", parents=True)


async def _timed(renames: int, concurrency: int, call: Callable[[int], Awaitable[object]]) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    await each(renames, concurrency, call)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_us": cpu / renames * 1e6, "per_s": renames / wall}


def run(renames: int, concurrency: int, rounds: int) -> dict[str, dict[str, float]]:
    """Every case in turn, so many times; the medians."""
    import uvloop

    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        trusted = certificate(directory)
        with emulator() as plain, emulator("--certificate", trusted) as secure:
            for _ in range(rounds):
                for name, fast, tls, official in CASES:
                    with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
                        measured = runner.run(
                            measure(secure if tls else plain, renames, concurrency, trusted if tls else None, official)
                        )
                    found.setdefault(name, []).append(measured)
    return {
        name: {key: statistics.median(one[key] for one in some) for key in ("cpu_us", "per_s")}
        for name, some in found.items()
    }


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renames", type=int, default=4000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="writes the figures here, too")
    given = parser.parse_args(arguments)
    found = run(given.renames, given.concurrency, given.rounds)
    print(f"{'':28}{'CPU a rename':>14}{'renames a second':>20}")
    for name, figures in found.items():
        print(f"{name:28}{figures['cpu_us']:>11.0f} us{figures['per_s']:>20,.0f}")
    if given.json:
        Path(given.json).write_text(json.dumps({"name": NAME, "renames": given.renames, "cases": found}, indent=2))


if __name__ == "__main__":
    main()
