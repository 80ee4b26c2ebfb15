"""Progress of one job: its running stage, how far that is, and a heartbeat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Final, Literal, TypeAlias

import msgspec

from committer.errors import ConfigurationError
from committer.flow.runtime import Runtime, Timer, current_runtime
from committer.logs import Logger, job_logger

logger: Logger = job_logger(__name__)

EventKind: TypeAlias = Literal[
    "tasks_committed", "stage_started", "advanced", "stage_completed", "stage_failed", "heartbeat", "message"
]

HEARTBEAT_S: Final = 10.0

# A listener draws on a terminal or writes a log line: not ten million times for ten million files.
_ADVANCE_INTERVAL_S = 0.1


class JobEvent(msgspec.Struct, frozen=True):
    """Progress event of a job.

    Attributes:
        kind: `advanced` comes at most ten times a second and stage. `tasks_committed` counts the committed tasks
            of an open job, in `done`.
        job_id: The job.
        stage: The stage; empty between stages.
        done: Items done in the stage so far.
        total: Items to do in it, if known.
        bytes_done: Bytes of the done items.
        at_s: Seconds since progress of the job began.
        message: Words for a person; empty for most kinds.
    """

    kind: EventKind
    job_id: str
    stage: str = ""
    done: int = 0
    total: int | None = None
    bytes_done: int = 0
    at_s: float = 0.0
    message: str = ""


Listener: TypeAlias = Callable[[JobEvent], None]
"""Called on the event loop for each event; must return at once."""


@dataclass(slots=True, eq=False)
class _Stage:
    """State of one stage of one job."""

    progress: Progress
    name: str = ""
    total: int | None = None
    done: int = 0
    bytes_done: int = 0
    reported_at: float = -_ADVANCE_INTERVAL_S


# Tasks inherit it, so workers of concurrent stages each advance their own.
_here: ContextVar[_Stage | None] = ContextVar("committer_stage", default=None)


class Progress:
    """Reporter of a job's progress to its listeners.

    A listener that raises is logged once and never called again: it cannot break a commit.

    Attributes:
        last_stage: The stage that began last, also after a failure. Empty before the first.
    """

    def __init__(self, job_id: str, listeners: Iterable[Listener] = (), clock: Runtime | None = None) -> None:
        self.job_id = job_id
        self._listeners = list(listeners)
        self._clock = clock or current_runtime()
        self._started_at = self._clock.monotonic()
        self._stages: list[_Stage] = []
        self.last_stage: str = ""

    @property
    def is_heard(self) -> bool:
        """True if there is a listener."""
        return bool(self._listeners)

    def listen(self, listener: Listener) -> None:
        """Adds a listener; refuses an async function."""
        refuse_async(listener)
        self._listeners.append(listener)

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[None]:
        """Marks a block as a stage; `advance` inside it, in its tasks too, counts for it. `total` is its number of
        items.
        """
        before = _here.get()
        stage = _Stage(self, name, total)
        self.last_stage = name
        self._stages.append(stage)
        _here.set(stage)
        self._tell("stage_started", stage)
        try:
            yield
        except BaseException as error:
            self._tell("stage_failed", stage, f"{type(error).__name__}: {error}")
            raise
        else:
            self._tell("stage_completed", stage)
        finally:
            self._stages.remove(stage)
            _here.set(before)

    def advance(self, n: int = 1, bytes: int = 0) -> None:
        """Counts `n` more done items of `bytes` bytes; no effect outside a stage."""
        stage = self._current()
        if stage is None:
            return
        stage.done += n
        stage.bytes_done += bytes
        if self._listeners:
            now = self._clock.monotonic()
            if now >= stage.reported_at + _ADVANCE_INTERVAL_S:
                stage.reported_at = now
                self._tell("advanced", stage)

    def expect(self, total: int) -> None:
        """Sets the number of items of the current stage, when it becomes known."""
        stage = self._current()
        if stage is not None:
            stage.total = total

    def message(self, text: str) -> None:
        """Sends a message to listeners."""
        self._tell("message", self._current(), text)

    def report_committed_tasks(self, tasks: int) -> None:
        """Reports the number of committed tasks of an open job."""
        self._tell("tasks_committed", _Stage(self, done=tasks))

    @asynccontextmanager
    async def heartbeat(self, interval_s: float = HEARTBEAT_S) -> AsyncIterator[None]:
        """Emits a heartbeat every `interval_s` seconds while the block runs, with a timer and no task."""
        timer: Timer | None = None

        def beat() -> None:
            nonlocal timer
            timer = self._clock.call_later(interval_s, beat)
            self._tell("heartbeat", self._stages[-1] if self._stages else None)

        timer = self._clock.call_later(interval_s, beat)
        try:
            yield
        finally:
            timer.cancel()

    def _current(self) -> _Stage | None:
        stage = _here.get()
        if stage is not None and stage.progress is self:
            return stage
        return self._stages[-1] if self._stages else None

    def _tell(self, kind: EventKind, stage: _Stage | None, message: str = "") -> None:
        if not self._listeners:
            return
        event = JobEvent(
            kind=kind,
            job_id=self.job_id,
            stage=stage.name if stage else "",
            done=stage.done if stage else 0,
            total=stage.total if stage else None,
            bytes_done=stage.bytes_done if stage else 0,
            at_s=self._clock.monotonic() - self._started_at,
            message=message,
        )
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                logger.exception("a progress listener of job %s failed and is dropped", self.job_id)
                self._listeners.remove(listener)


def refuse_async(listener: object) -> None:
    """Refuses an async listener, whose coroutine would never be awaited."""
    if iscoroutinefunction(listener) or iscoroutinefunction(getattr(listener, "__call__", None)):  # noqa: B004
        raise ConfigurationError(
            "a listener is an async function, which would never be run: listeners are called and not awaited",
            operation="listen",
            next_step="give a plain function; what must be awaited it starts as a task of its own, with "
            "asyncio.get_running_loop().create_task(...)",
        )
