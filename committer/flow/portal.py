"""Event loop, in a thread of its own, for all blocking calls of a process.

It starts at the first call. A forked child starts its own and never touches the inherited one: its thread does not
exist there, its locks may be held for ever, and closing its loop would unhook the parent's. Non-daemon threads may
call it after the main thread ended. At interpreter exit, after those threads, it frees open jobs and files and
stops, within seconds; it decides no job then.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import anyio
from anyio.from_thread import BlockingPortal

from committer.advice import blocking, to_blocking_callers
from committer.errors import CommitterError
from committer.flow.threads import LastingExecutor

T = TypeVar("T")

UNWIND_BOUND_S: Final = 75.0
"""Longest wait for an interrupted call, above the engine's limit for an abort (`flow.shielded.UNDO_BOUND_S`)."""

EXIT_BOUND_S: Final = 5.0
"""Longest wait of the interpreter's exit for the loop."""


_THREADS: Final = 32

# A signal right before a thread's wait does not wake it: Python handles it only when the wait ends.
_GLANCE_S = 1.0


class Resource(Protocol):
    """Object that must be freed at the end of the process."""

    async def _free(self) -> None: ...


class _Call(Generic[T]):
    """Call on the loop; a thread waits for `done`."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self.done: threading.Event = threading.Event()
        self.error: BaseException | None = None
        self._function = function
        self._result: T | None = None
        self._task: asyncio.Task[object] | None = None
        self._stopped = False

    async def run(self) -> None:
        if self._stopped:
            return
        self._task = asyncio.current_task()
        try:
            self._result = await self._function()
        except asyncio.CancelledError as error:
            self.error = error
            raise
        except BaseException as error:
            # Also KeyboardInterrupt of a store: it belongs to the caller, and would end the loop here.
            self.error = error
        finally:
            self.done.set()

    def stop(self) -> None:
        """Cancels the call once, in the loop's thread."""
        if self._task is not None:
            self._task.cancel()
        elif not self._stopped:
            self._stopped = True
            self.error = asyncio.CancelledError()
            self.done.set()

    @property
    def succeeded(self) -> bool:
        return self.done.is_set() and self.error is None

    def result(self) -> T:
        if self.error is not None:
            try:
                raise self.error
            finally:
                # The traceback holds this frame, which holds the call: else every failure is a reference cycle.
                self.error = None
        return cast("T", self._result)


class Portal:
    """Running event loop in a daemon thread of the process `pid`. `failure` is the error that ended it, if any."""

    # Not anyio's start_blocking_portal, which is a generator: a forked child would finalise the inherited one at its
    # end, and wait for a thread that does not exist there.

    def __init__(self) -> None:
        self.pid: int = os.getpid()
        self.resources: weakref.WeakSet[Resource] = weakref.WeakSet()
        self.failure: BaseException | None = None
        self._calls: set[_Call[Any]] = set()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._portal: BlockingPortal | None = None
        self._closing: asyncio.Task[None] | None = None
        # The loop outlives the first caller, so it must not inherit its context variables.
        self._thread = threading.Thread(target=Context().run, args=(self._main,), name="committer-sync", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the loop's."""
        return self._thread.ident == threading.get_ident()

    def ready(self) -> BlockingPortal:
        """Waits until the loop runs; raises OSError if the system cannot provide one."""
        self._ready.wait()
        if self._portal is None:
            raise self.failure or RuntimeError("the event loop ended before it began")
        return self._portal

    def start(self, call: _Call[Any]) -> None:
        """Starts a call in the caller's context variables; raises RuntimeError after `close`."""
        self.ready().start_task_soon(self._run, call, name="committer.sync")

    def stop(self, call: _Call[Any]) -> None:
        """Cancels a call without waiting for it."""
        try:
            if self._loop is not None:
                # Directly to the loop: the portal would wait until the loop has time.
                self._loop.call_soon_threadsafe(call.stop)
                return
        except RuntimeError:
            pass  # closed: only this thread touches the call from now on
        call.stop()

    def close(self) -> None:
        """Frees resources, cancels calls and ends the thread; waits at most `EXIT_BOUND_S`."""
        if self._ready.wait(EXIT_BOUND_S) and self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin_to_close)
            self._thread.join(EXIT_BOUND_S)

    def _main(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:
            self.failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with BlockingPortal() as portal:
            self._portal = portal
            self._loop = asyncio.get_running_loop()
            self._loop.set_default_executor(LastingExecutor(_THREADS, "committer-sync"))
            self._ready.set()
            await portal.sleep_until_stopped()

    async def _run(self, call: _Call[Any]) -> None:
        self._calls.add(call)
        try:
            await call.run()
        finally:
            self._calls.discard(call)

    def _begin_to_close(self) -> None:
        self._closing = asyncio.get_running_loop().create_task(self._close())

    async def _close(self) -> None:
        for call in self._calls:
            call.stop()
        try:
            with anyio.move_on_after(EXIT_BOUND_S / 2):
                for resource in tuple(self.resources):
                    with suppress(Exception):
                        await resource._free()
        finally:
            if self._portal is not None:
                await self._portal.stop()


class _Process:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.portal: Portal | None = None
        self.inherited: list[Portal] = []
        self.ended = False

    def before_fork(self) -> None:
        # A starting portal imports modules: a child would inherit their locks for ever.
        self.lock.acquire()

    def after_fork_in_parent(self) -> None:
        self.lock.release()

    def after_fork_in_child(self) -> None:
        self.lock = threading.RLock()
        # Kept, so that it is not finalised.
        if self.portal is not None:
            self.inherited.append(self.portal)
            self.portal = None

    def at_exit(self) -> None:
        self.ended = True
        if self.portal is not None and self.portal.pid == os.getpid():
            self.portal.close()

    def current(self) -> Portal:
        with self.lock:
            portal = self.portal
            if portal is None or portal.pid != os.getpid() or portal.failure is not None:
                portal = self.portal = Portal()
                portal.ready()
            return portal


_process = _Process()
atexit.register(_process.at_exit)
os.register_at_fork(
    before=_process.before_fork,
    after_in_parent=_process.after_fork_in_parent,
    after_in_child=_process.after_fork_in_child,
)


def is_ending() -> bool:
    """Whether the interpreter runs its exit handlers, so that no more calls can be made."""
    return _process.ended or (
        not threading.main_thread().is_alive() and threading.current_thread() is threading.main_thread()
    )


def wait_for(
    function: Callable[[], Awaitable[T]],
    operation: str,
    *,
    undo: Callable[[T, BaseException], Awaitable[object]] | None = None,
) -> T:
    """Runs a coroutine on the portal's loop, in the caller's context variables, and returns its result.

    An interrupt (KeyboardInterrupt, or an error of a signal handler) cancels the coroutine and waits until it has
    unwound, at most `UNWIND_BOUND_S`; a second interrupt ends that wait. If the coroutine succeeded, `undo` gets its
    result and the interrupt. Raises `CommitterError` on the loop's own thread, or while the interpreter exits.
    """
    if is_ending():
        raise _ending(operation)
    portal = _process.current()
    if portal.is_here:
        raise CommitterError(
            f"committer.sync.{operation} was called on the thread that runs its calls (by a listener, or a store), "
            "which would wait for itself",
            operation=operation,
            next_step="call it in a thread of your own, or use the names of committer with await",
        )
    call = _Call(function)
    try:
        portal.start(call)
        while not call.done.wait(_GLANCE_S):
            pass
    except BaseException as interrupt:
        _unwind(portal, call, interrupt, undo)
        if is_ending() and isinstance(interrupt, RuntimeError):
            raise _ending(operation) from interrupt
        raise
    try:
        with to_blocking_callers():
            return call.result()
    except asyncio.CancelledError as error:
        if is_ending():
            raise _ending(operation) from None
        raise CommitterError(
            f"{operation} was cancelled from within",
            operation=operation,
            outcome="unknown",
            next_step="committer.sync.list_jobs shows what came of the job, committer.sync.recover ends it",
        ) from error
    except RuntimeError as error:
        if threading.main_thread().is_alive():
            raise
        # Thread pools of other libraries end with the main thread, while other threads still run.
        raise _ending(operation, outcome_known=False) from error


def free_at_exit(resource: Resource) -> None:
    """Registers an object to be freed when the interpreter exits."""
    _process.current().resources.add(resource)


def _unwind(
    portal: Portal,
    call: _Call[T],
    interrupt: BaseException,
    undo: Callable[[T, BaseException], Awaitable[object]] | None,
) -> None:
    portal.stop(call)
    if not call.done.wait(UNWIND_BOUND_S):
        interrupt.add_note(f"what was interrupted had not ended {UNWIND_BOUND_S:.0f} s later, and goes on")
    elif not call.succeeded:
        if not isinstance(call.error, asyncio.CancelledError):
            interrupt.add_note(
                f"what was interrupted ended with {type(call.error).__name__}: {blocking(str(call.error))}"
            )
    elif undo is not None:
        result = call.result()
        undoing = _Call(lambda: undo(result, interrupt))
        portal.start(undoing)
        undoing.done.wait(UNWIND_BOUND_S)


def _ending(operation: str, *, outcome_known: bool = True) -> BaseException:
    if threading.current_thread().daemon:
        # The interpreter does not wait for a daemon thread, which should end silently.
        return SystemExit()
    return CommitterError(
        f"the interpreter is exiting: {operation} cannot run any more",
        operation=operation,
        outcome="unchanged" if outcome_known else "unknown",
        next_step="end jobs, and join the threads that work on them, before the main program ends; "
        "a job that is left is seen by list_jobs and ended by recover, abort or cleanup",
    )
