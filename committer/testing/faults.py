"""A store that fails on demand and records its calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Literal, TypeAlias, TypeVar

import msgspec

from committer.errors import (
    CommitterError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import Capabilities, Store
from committer.stores.forwarding import ForwardingStore, Operation
from committer.stores.uploads import UploadPart

__all__ = ["Call", "Fault", "FaultKind", "FaultyStore", "Hook", "SimulatedCrash"]

FaultKind: TypeAlias = Literal[
    "unavailable", "throttled", "forbidden", "unanswered", "lost", "crash_before", "crash_after", "late", "again"
]


class SimulatedCrash(BaseException):
    """The process died here. No ``except Exception`` catches it, as none would catch a SIGKILL."""


class Call(msgspec.Struct):
    """Call that reached a `FaultyStore`.

    Attributes:
        number: Its number in order of arrival, from 1.
        operation: The store method; for a file being written ``write``, ``close_writer`` or ``abort_writer``.
        result: Empty while it runs; then ``ok`` or the name of the error that the caller got.
    """

    number: int
    operation: str
    path: StorePath
    destination: StorePath | None = None
    fault: FaultKind | None = None
    result: str = ""

    def __str__(self) -> str:
        target = f" -> {self.destination}" if self.destination is not None else ""
        fault = f" [{self.fault}]" if self.fault else ""
        return f"{self.number:4} {self.operation} {self.path}{target}{fault}: {self.result or 'running'}"


class Fault(msgspec.Struct, kw_only=True):
    """Fault, for the calls that match everything given.

    Attributes:
        kind: What happens. Without effect: ``unavailable``, ``throttled``, ``forbidden``, and ``unanswered``
            (the request is lost, which the caller cannot know). After the effect: ``lost`` (the response is
            lost). ``crash_before`` and ``crash_after`` kill the process: this call, and every later one, raises
            `SimulatedCrash`. Delayed requests: ``late`` (the caller gets an unknown outcome, and the request
            arrives `delay_s` later), ``again`` (the caller gets the response, and the request arrives a second
            time `delay_s` later); for listings and writes to an open file both mean ``lost``.
        call: The number of the call.
        operation: The name of the operation.
        path: Part of a path's text, or a predicate; one of the call's two paths must match.
        times: Number of matching calls that it hits, the first ones; None for all.
        retry_after_s: Wait that a throttled call asks for, in seconds.
        delay_s: Delay of a late or repeated request, in seconds of the runtime.
    """

    kind: FaultKind
    call: int | None = None
    operation: str | None = None
    path: str | Callable[[StorePath], bool] | None = None
    times: int | None = 1
    retry_after_s: float | None = None
    delay_s: float = 1.0

    def fits(self, call: Call) -> bool:
        """Returns True if the fault matches a call, used up or not."""
        if self.call is not None and self.call != call.number:
            return False
        if self.operation is not None and self.operation != call.operation:
            return False
        paths = [path for path in (call.path, call.destination) if path is not None]
        if isinstance(self.path, str):
            return any(self.path in str(path) for path in paths)
        return self.path is None or any(self.path(path) for path in paths)


T = TypeVar("T")

Hook: TypeAlias = Callable[[Call], Awaitable[None]]

# These cannot be delayed: a listing changes nothing, and an open file is one connection.
_IN_ORDER = frozenset({"list", "list_tree", "list_uploads", "list_parts", "write", "close_writer", "abort_writer"})


class FaultyStore(ForwardingStore):
    """Wraps a store as one process's connection to it.

    Each rename of a file is a call, even if the inner store renames many in one. A listing is one call; a fault
    after its effect comes behind its last entry. `local_path` and `close` are no store calls and always work,
    so that a test can clean up after a crash.

    Attributes:
        inner: The wrapped store, as another process, or a test, sees it.
        faults: Faults from now on; the first that matches a call hits it. May be changed at any time.
        calls: Every call so far, in order of arrival.
        before_call: Awaited before each call, crashes included; lets a test act at exactly that moment.
        after_effect: Called right after each effect, before anything else can happen; for delayed requests, too.
        crashed: Whether the process died.
        under_way: Requests that will still arrive.
    """

    def __init__(self, inner: Store, faults: Iterable[Fault] = (), *, before_call: Hook | None = None) -> None:
        super().__init__(inner)
        self.faults: list[Fault] = list(faults)
        self.calls: list[Call] = []
        self.before_call = before_call
        self.after_effect: Callable[[Call], None] | None = None
        self.crashed: bool = False
        self.under_way: set[asyncio.Task[None]] = set()

    def count(self, operation: str | None = None) -> int:
        """Counts the calls of one operation or of all."""
        return sum(operation in (None, call.operation) for call in self.calls)

    def counts(self) -> Counter[str]:
        """Counts the calls of each operation."""
        return Counter(call.operation for call in self.calls)

    def log(self) -> str:
        """Renders every call, one a line."""
        return "\n".join(str(call) for call in self.calls)

    async def call(
        self,
        operation: Operation,
        send: Callable[[], Awaitable[T]],
        path: StorePath,
        destination: StorePath | None = None,
    ) -> T:
        """Makes one of the store's own calls; as `run`."""
        return await self.run(operation.name, send, path, destination)

    async def stream(
        self, operation: Operation, entries: Callable[[], AsyncIterator[T]], path: StorePath
    ) -> AsyncIterator[T]:
        """Counts a listing as one call; a fault after the effect comes behind the last entry."""
        call, fault = await self._begin(operation.name, path)
        self._strike_before(call, fault)
        async for entry in entries():
            yield entry
            self._check_alive(call)
        self._strike_after(call, fault)

    async def run(
        self, operation: str, effect: Callable[[], Awaitable[T]], path: StorePath, destination: StorePath | None = None
    ) -> T:
        """Counts a call and makes it, or fails it by a fault; for stores with further operations."""
        call, fault = await self._begin(operation, path, destination)
        if fault is not None and fault.kind in {"late", "again"}:
            self._send_later(call, effect, fault.delay_s)
        self._strike_before(call, fault)
        try:
            result = await effect()
        except Exception as error:
            call.result = type(error).__name__
            self._strike_after(call, fault)
            raise
        self._affected(call)
        self._strike_after(call, fault)
        return result

    def fault_for(self, call: Call) -> Fault | None:
        """Returns the fault for a call that is about to be made, and uses it up; called once a call."""
        for fault in self.faults:
            if fault.times != 0 and fault.fits(call):
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None

    def _send_later(self, call: Call, effect: Callable[[], Awaitable[T]], delay_s: float) -> None:
        async def arrive() -> None:
            await current_runtime().sleep(delay_s)
            late = Call(call.number, f"{call.operation} (late)", call.path, call.destination)
            self.calls.append(late)
            try:
                await effect()
            except CommitterError as error:
                late.result = type(error).__name__
            else:
                late.result = "ok"
                self._affected(late)

        task = asyncio.create_task(arrive())
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    def _affected(self, call: Call) -> None:
        if self.after_effect is not None:
            self.after_effect(call)

    async def _begin(
        self, operation: str, path: StorePath, destination: StorePath | None = None
    ) -> tuple[Call, Fault | None]:
        call = Call(len(self.calls) + 1, operation, path, destination)
        self.calls.append(call)
        self._check_alive(call)
        if self.before_call is not None:
            await self.before_call(call)
            self._check_alive(call)
        fault = self.fault_for(call)
        if fault is not None:
            call.fault = fault.kind
            if fault.kind in {"late", "again"} and operation in _IN_ORDER:
                fault = msgspec.structs.replace(fault, kind="lost")
        return call, fault

    def _strike_before(self, call: Call, fault: Fault | None) -> None:
        if fault is None or fault.kind in {"lost", "crash_after", "again"}:
            return
        if fault.kind == "crash_before":
            self.crashed = True
            self._check_alive(call)
        if fault.kind == "throttled":
            error: Exception = StoreThrottledError(
                "injected: slow down", operation=call.operation, path=call.path, retry_after_s=fault.retry_after_s
            )
        elif fault.kind == "forbidden":
            error = StorePermissionError("injected: no right", operation=call.operation, path=call.path)
        elif fault.kind in {"unanswered", "late"}:
            error = StoreOutcomeUnknownError("injected: the request was lost", operation=call.operation, path=call.path)
        else:
            error = StoreUnavailableError("injected: not taken", operation=call.operation, path=call.path)
        call.result = type(error).__name__
        try:
            raise error
        finally:
            # An error that its own frame holds waits for the cycle collector, which tests count.
            del error

    def _strike_after(self, call: Call, fault: Fault | None) -> None:
        # A call in progress when the process died had its effect, but its caller never learns of it.
        self._check_alive(call)
        if fault is None or fault.kind not in {"lost", "crash_after"}:
            call.result = call.result or "ok"
            return
        if fault.kind == "crash_after":
            self.crashed = True
            self._check_alive(call)
        call.result = "StoreOutcomeUnknownError"
        raise StoreOutcomeUnknownError("injected: the answer was lost", operation=call.operation, path=call.path)

    def _check_alive(self, call: Call) -> None:
        if self.crashed:
            call.result = "SimulatedCrash"
            raise SimulatedCrash(f"call {call.number}, {call.operation} {call.path}")

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the inner store, without `batch_rename` and `tree_counts`."""
        can = self.inner.capabilities
        return msgspec.structs.replace(can, batch_rename=False, tree_counts=False) if can.batch_rename else can

    async def put_part(
        self, path: StorePath, upload_id: str, number: int, data: bytes | bytearray | memoryview
    ) -> UploadPart:
        """Sends a part; one call."""
        # Copied, because a delayed request arrives when the caller's buffer may hold something else.
        return await super().put_part(path, upload_id, number, bytes(data))

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """Sends a block; one call."""
        await super().put_block(path, block_id, bytes(data))
