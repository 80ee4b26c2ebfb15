"""A paced store over a store that fails as told, and every call that it can be asked for."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping

import pytest

from committer.errors import StoreError
from committer.events import Statistics
from committer.flow.pacing import Pacer
from committer.flow.retry import RetryPolicy
from committer.paths import StorePath
from committer.stores.memory import MemoryStore
from committer.stores.paced import PacedStore
from committer.testing.faults import Fault, FaultKind, FaultyStore
from committer.testing.virtual_time import VirtualRuntime

_numbers = itertools.count()


class Bench:
    """A paced store over a memory space that fails as told."""

    def __init__(self, *, concurrency: int = 4, rate: float | None = None, attempts: int = 5) -> None:
        self.runtime = VirtualRuntime()
        deletes = ("conditional_delete", "batch_delete", "conditional_batch_delete")
        abilities = dict.fromkeys(("multipart", "block_lists", *deletes), True)
        self.space = MemoryStore.space(f"paced-{next(_numbers)}", **abilities)
        self.faulty = FaultyStore(self.space.store())
        self.pacer = Pacer("e", concurrency=concurrency, rate=rate, runtime=self.runtime)
        self.statistics = Statistics(self.runtime)
        self.store = PacedStore(
            self.faulty, pacer=self.pacer, statistics=self.statistics, retry_policy=RetryPolicy(attempts=attempts)
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
    "delete_files": lambda bench: bench.store.delete_files(
        {bench.path("d/file"): None, bench.path("d/sub/deep"): None}
    ),
    "delete_files, conditional": lambda bench: bench.store.delete_files(
        {bench.path("d/file"): bench.identity, bench.path("d/sub/deep"): "another"}
    ),
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


class Refusing(MemoryStore):
    """Refuses single names of a batch, as DeleteObjects does inside an answer that is 200."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.answers: list[dict[str, StoreError]] = []
        self.asked: list[list[str]] = []

    async def delete_files(self, files: Mapping[StorePath, str | None]) -> Mapping[StorePath, StoreError]:
        self.asked.append([path.name for path in files])
        refused = self.answers.pop(0) if self.answers else {}
        found = await super().delete_files({path: files[path] for path in files if path.name not in refused})
        return {**found, **{path: refused[path.name] for path in files if path.name in refused}}


def refusing(bench: Bench) -> tuple[Refusing, PacedStore]:
    inner = Refusing(bench.space.name)
    policy = RetryPolicy(attempts=3)
    return inner, PacedStore(inner, pacer=bench.pacer, statistics=bench.statistics, retry_policy=policy)
