"""What wraps a store passes every call on, and every ability: one that it forgot would be lost without a word."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import pytest

import committer.stores.abilities
import committer.stores.examination
import committer.stores.uploads
from committer.errors import UnsupportedError
from committer.events import Statistics
from committer.flow.pacing import Pacer
from committer.paths import StorePath
from committer.stores.abilities import BATCH_RENAME, HARD_LINKS, LOCAL_PATHS, Ability, Capabilities, abilities
from committer.stores.base import FileWriter, Store
from committer.stores.forwarding import ForwardingStore, Operation
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.stores.paced import PacedStore
from committer.stores.uploads import BLOCK_LISTS, UPLOADS
from committer.testing.faults import FaultyStore

T = TypeVar("T")

ALL = abilities()
CALLS = sorted(Store.__abstractmethods__ - {"scheme", "endpoint", "capabilities", "close"})
NO_CALLS = {"local_path", "findings"}
PATH, OTHER = StorePath("memory", "any", "/a"), StorePath("memory", "any", "/b")
ARGUMENTS: dict[str, Any] = {
    "path": PATH, "directory": PATH, "source": PATH, "root": PATH, "destination": OTHER, "directories": ["d"],
    "paths": [PATH, OTHER], "renames": [(PATH, OTHER)], "data": b"data", "limit": 7, "exclusive": True,
    "temporary": OTHER, "durable": True, "parents": True, "replace": True, "identity": "i", "recursive": True,
    "kind": "file", "metadata": {"a": "b"}, "stamp": "s", "upload_id": "u", "number": 3, "parts": [1, 2],
    "name": "n", "block_id": "b", "block_ids": ["b"], "version": "v", "seen": [("i", 1)], "identities": ["i"],
    "known": True, "looks": False, "scratch": OTHER, "pairs": [(PATH, OTHER)], "files": {PATH: "i", OTHER: "j"},
}  # fmt: skip
"""Something else than the default for each parameter of a method."""

COUNTED_AS = {"put_described": "put", "replace_file": "put"}
"""What a method is to what wraps the store, where that is another one."""


class Able(MemoryStore):
    """Has every method of every ability, and notes what each was called with."""

    told: tuple[str, dict[str, Any]]

    capabilities = msgspec.structs.replace(  # type: ignore[assignment]
        Capabilities(),
        **{
            name: True
            for name, default in zip(Capabilities.__struct_fields__, Capabilities.__struct_defaults__, strict=True)
            if default is False
        },
    )


def answered(name: str, *, listing: bool, waits: bool) -> Any:
    """A method that notes what it was called with, and answers with its name."""

    def told(self: Able, *args: Any, **named: Any) -> Any:
        arguments = dict(inspect.signature(getattr(ForwardingStore, name)).bind(self, *args, **named).arguments)
        del arguments["self"]
        self.told = name, arguments
        return name

    async def coroutine(self: Able, *args: Any, **named: Any) -> Any:
        return told(self, *args, **named)

    async def entries(self: Able, *args: Any, **named: Any) -> Any:
        yield told(self, *args, **named)

    return entries if listing else coroutine if waits else told


LISTINGS = {"list", "list_tree", "list_uploads", "list_parts"}
METHODS = [*CALLS, *(method for ability in ALL for method in ability.methods)]
for method in METHODS:
    setattr(Able, method, answered(method, listing=method in LISTINGS, waits=method != "local_path"))


class Noting(ForwardingStore):
    """Notes what passes through."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.noted: list[tuple[str, StorePath, StorePath | None]] = []

    async def call(
        self,
        operation: Operation,
        send: Callable[[], Awaitable[T]],
        path: StorePath,
        destination: StorePath | None = None,
    ) -> T:
        self.noted.append((operation.name, path, destination))
        return await send()

    def stream(
        self, operation: Operation, entries: Callable[[], AsyncIterator[T]], path: StorePath
    ) -> AsyncIterator[T]:
        self.noted.append((operation.name, path, None))
        return entries()


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_is_passed_on_as_it_was_called(method: str) -> None:
    inner = Able("any")
    store = Noting(inner)
    named = {name: ARGUMENTS[name] for name in inspect.signature(getattr(store, method)).parameters}
    answer = getattr(store, method)(**named)
    if method in LISTINGS:
        (answer,) = [one async for one in answer]
    elif method != "local_path":
        answer = await answer
    if method == "open_writer":
        answer = answer._inner
    assert inner.told == (method, named)
    assert answer in (method, None)
    noted = [] if method in NO_CALLS else [(COUNTED_AS.get(method, method), PATH)]
    assert [one[:2] for one in store.noted] == noted
    if "destination" in named:
        assert store.noted[0][2] == OTHER


def test_every_ability_is_known_and_passed_on() -> None:
    stores = committer.stores
    modules = (stores.abilities, stores.examination, stores.uploads)
    protocols = {
        found
        for module in modules
        for name, found in vars(module).items()
        if name.startswith("Supports") and getattr(found, "_is_protocol", False)
    }
    assert {ability.protocol for ability in ALL} == protocols
    for ability in ALL:
        assert set(ability.methods) <= set(vars(ForwardingStore)), ability.described
        assert not ability.declared(Capabilities())
        assert ability.of(Noting(Able("any"))) is not None


@pytest.mark.parametrize("kind", [PacedStore, FaultyStore])
def test_wrappers_are_forwarding_stores_whose_methods_are_its_own(kind: type[Store]) -> None:
    """Methods that they override take the same parameters."""
    assert issubclass(kind, ForwardingStore)
    for method in METHODS:
        mine, its = (inspect.signature(getattr(one, method)) for one in (kind, ForwardingStore))
        assert mine.parameters.keys() == its.parameters.keys()


class Gone(Protocol):
    """An ability that the forwarding store does not know."""

    async def fly(self, path: StorePath) -> None: ...


def test_an_ability_that_is_not_passed_on_is_not_had() -> None:
    flies: Ability[Gone] = Ability(Gone, "wings", lambda can: can.hard_links)
    committer.stores.abilities._ABILITIES.remove(flies)

    class Bird(Able):
        async def fly(self, path: StorePath) -> None: ...

    assert flies.of(Bird("any")) is not None
    assert flies.of(Noting(Bird("any"))) is None
    with pytest.raises(UnsupportedError, match="has no wings") as caught:
        flies.required(Noting(Bird("any")), "fly", PATH)
    assert (caught.value.operation, caught.value.path) == ("fly", str(PATH))


def test_what_is_declared_and_not_implemented_is_named() -> None:
    class Older(MemoryStore):
        capabilities = msgspec.structs.replace(Capabilities(), multipart=True, block_lists=True)  # type: ignore[assignment]
        put_described = list_parts = None  # type: ignore[assignment]

    assert BLOCK_LISTS.of(Noting(Older("any"))) is not None
    for store in (Older("any"), Noting(FaultyStore(Older("any")))):
        with pytest.raises(UnsupportedError, match="declares uploads, and its class lacks list_parts, put_described"):
            UPLOADS.required(store, "create_upload", PATH)


async def test_what_is_not_declared_is_not_had_behind_any_number_of_wrappers() -> None:
    bare, able = MemoryStore.space("bare", "s3").store(), MemoryStore.space("able", "local").store()
    for store, has in ((bare, False), (able, True)):
        for wrapped in (store, Noting(store), Noting(FaultyStore(Noting(store)))):
            assert (HARD_LINKS.of(wrapped) is wrapped) is has
            assert LOCAL_PATHS.of(wrapped) is None
    with pytest.raises(UnsupportedError, match="has no hard links"):
        await Noting(bare).link_file(PATH, OTHER)


async def test_a_writer_goes_through_its_store(tmp_path: Path) -> None:
    store = Noting(LocalStore())
    writer: FileWriter = await store.open_writer(StorePath.of(tmp_path / "file"))
    await writer.write(b"data")
    assert (await writer.close()).size == 4
    await writer.abort()
    assert [name for name, *_ in store.noted] == ["open_writer", "write", "close_writer", "abort_writer"]
    await store.close()


async def test_a_store_that_renames_in_its_own_way_is_not_handed_many() -> None:
    class Own(LocalStore):
        async def rename_file(self, *arguments: Any, **named: Any) -> None: ...

    class OwnBoth(Own):
        async def rename_files(self, renames: Any) -> Any: ...

    class Wrapper(ForwardingStore):
        async def rename_file(self, *arguments: Any, **named: Any) -> None: ...

    paced = PacedStore(Own(), pacer=Pacer("e", concurrency=1), statistics=Statistics())
    assert BATCH_RENAME.of(LocalStore()) is not None
    assert BATCH_RENAME.of(OwnBoth()) is not None
    for store in (Own(), Wrapper(LocalStore()), FaultyStore(LocalStore()), Noting(Own()), paced):
        assert BATCH_RENAME.of(store) is None
