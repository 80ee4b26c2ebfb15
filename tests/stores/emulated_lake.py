"""Emulated services as tests of whole jobs see them: where tables are, what a rename is called, and what is refused how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from committer.paths import StorePath
from committer_testing.emulators import adls, gcs
from committer_testing.emulators.faults import Conduct, Fault
from tests.stores import adls_account, gcs_bucket


class EmulatedLake(ABC):
    """One emulated service with a place for tables.

    Attributes:
        root: Where tables are.
        rename: The operation that publishes a file.
        renamed: Its status codes when it was done; 0 where the connection was cut before the answer.
        gone: How a front end tells a rename that it sent twice.
        forbidden: How the service refuses for good.
        throttled: How it asks to slow down.
        conduct: Faults to come, and the log of requests.
        options: The storage options that reach it.
    """

    root: ClassVar[StorePath]
    rename: ClassVar[str]
    renamed: ClassVar[frozenset[int]]
    gone: ClassVar[dict[str, Any]]
    forbidden: ClassVar[dict[str, Any]]
    throttled: ClassVar[dict[str, Any]]
    conduct: Conduct
    options: dict[str, object]

    @abstractmethod
    async def files(self, directory: StorePath) -> dict[str, bytes]:
        """All files below a directory, past every store."""

    @abstractmethod
    def check_requests(self, job_id: str, files: int) -> None:
        """Each request of a job is told from all others, in the service's own way."""

    def fail(self, kind: Any, *, files_only: bool = False, **details: Any) -> None:
        """Makes renames fail from now on; with `files_only` those alone whose source or target is a file of the table."""
        prefix = {"path_prefix": f"data{self.root.path}/table/year="} if files_only else {}
        self.conduct.faults.append(Fault(kind, operation=self.rename, **prefix, **details))


class AdlsLake(EmulatedLake):
    root = adls_account.ROOT
    rename = "rename"
    renamed = frozenset({0, 201})
    gone: ClassVar[dict[str, Any]] = {"status": 404, "code": "SourcePathNotFound"}
    forbidden: ClassVar[dict[str, Any]] = {"status": 403, "code": "AuthorizationFailure"}
    throttled: ClassVar[dict[str, Any]] = {"status": 503, "code": "ServerBusy", "retry_after": "0"}

    def __init__(self, emulator: adls.AdlsEmulator) -> None:
        adls_account.put_files(emulator)
        self._emulator = emulator
        self.conduct = emulator.conduct
        self.options = {"endpoint": emulator.dfs_url, "account_key": emulator.settings.key}

    async def files(self, directory: StorePath) -> dict[str, bytes]:
        return await adls_account.AccountChannel(self._emulator, directory).files()

    def check_requests(self, job_id: str, files: int) -> None:
        ids = [entry.client_request_id for entry in self.conduct.log if entry.operation == "rename"]
        assert sum(f";ji={job_id};st=job_stage_rename_files" in one for one in ids) == files


class GcsLake(EmulatedLake):
    root = gcs_bucket.ROOT
    rename = "move"
    renamed = frozenset({0, 200})
    gone: ClassVar[dict[str, Any]] = {"status": 404, "code": "notFound"}
    forbidden: ClassVar[dict[str, Any]] = {"status": 403, "code": "forbidden"}
    throttled: ClassVar[dict[str, Any]] = {"status": 429, "retry_after": "0"}

    def __init__(self, emulator: gcs.GcsEmulator) -> None:
        emulator.make_bucket("data")
        self._emulator = emulator
        self.conduct = emulator.conduct
        self.options = {"endpoint": emulator.url}

    async def files(self, directory: StorePath) -> dict[str, bytes]:
        return await gcs_bucket.BucketChannel(self._emulator, directory).files()

    def check_requests(self, job_id: str, files: int) -> None:
        changes = [entry for entry in self.conduct.log if entry.operation in {"move", "insert", "delete"}]
        tokens = {entry.client_request_id for entry in changes}
        assert len(tokens) == len(changes)
        assert "" not in tokens


LAKES = ("adls", "gcs")


@asynccontextmanager
async def serve_lake(kind: str) -> AsyncIterator[EmulatedLake]:
    """Serves one of `LAKES` while the block runs."""
    if kind == "adls":
        async with adls.serve() as account:
            yield AdlsLake(account)
    else:
        async with gcs.serve() as service:
            yield GcsLake(service)
