"""What one rename on Azure Data Lake Storage costs the client: this store beside the official client.

    uv run --extra adls benchmarks/adls_rename.py [--renames 4000] [--concurrency 64] [--rounds 3] [--json FILE]

Renames of empty files on the emulator, which runs in a process of its own: the store without the engine, by account
key, with the source's etag and `If-None-Match: *`, on asyncio's loop and on uvloop, with and without TLS; and
`DataLakeFileClient.rename_file` of azure-storage-file-datalake, a client for each file as applications do. They take
turns in each round. What counts is CPU time of this process a rename: the rate is the emulator's as much as the
client's.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.client_cpu import ADLS_RENAME, command_line, each, in_turns, timed
from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer_testing.emulators.adls import DEFAULT_KEY

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
    command = [sys.executable, "-m", "committer_testing.emulators.adls", *arguments]
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
        yield AdlsStore.open_for(ROOT, {**options, "http_session": session})


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
            return await timed(renames, concurrency, ours)
        from azure.storage.filedatalake.aio import DataLakeServiceClient

        async with DataLakeServiceClient(url, credential=DEFAULT_KEY) as service:

            async def theirs(number: int) -> None:
                file = service.get_file_client("data", f"bench/year=2026/{number}")
                await file.rename_file(f"data/bench/to/{number}")

            return await timed(renames, concurrency, theirs)


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


def run(renames: int, concurrency: int, rounds: int) -> dict[str, dict[str, float]]:
    """Every case in turn, so many times; the medians."""
    with tempfile.TemporaryDirectory() as directory:
        trusted = certificate(directory)
        with emulator() as plain, emulator("--certificate", trusted) as secure:

            def measured(tls: bool, official: bool) -> Callable[[int], Coroutine[Any, Any, dict[str, float]]]:
                url, certified = (secure, trusted) if tls else (plain, None)
                return lambda _turn: measure(url, renames, concurrency, certified, official)

            cases = [(name, fast, measured(tls, official)) for name, fast, tls, official in CASES]
            return in_turns(cases, rounds)


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    command_line(run, arguments, name=ADLS_RENAME, what="rename", count=4000, concurrency=64, description=__doc__)


if __name__ == "__main__":
    main()
