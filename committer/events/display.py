"""Live progress in a terminal, a notebook or a log.

Events only change numbers; a separate thread draws them. So a paused terminal, or a full pipe, never delays the
event loop and its commit.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final, Self

from committer.errors import ConfigurationError
from committer.events.progress import JobEvent, Listener, refuse_async
from committer.flow.runtime import current_runtime
from committer.readable import clean, seconds, size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_WINDOW_S: Final = 15.0

_WORDS: Final = {
    "committer_commit_job": "write _SUCCESS",
    "job_stage_abort": "abort",
    "job_stage_abort_uploads": "end uploads",
    "job_stage_cleanup": "clean up",
    "job_stage_complete_uploads": "publish files",
    "job_stage_create_target_dirs": "make directories",
    "job_stage_delete_superseded": "delete old files",
    "job_stage_load_manifests": "load records",
    "job_stage_optional_validate_output": "validate",
    "job_stage_rename_files": "publish files",
}


class Board:
    """Listener with the state of the newest running stage, or else the number of committed tasks; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: dict[str, _Stage] = {}
        self._tasks: _Stage | None = None

    def __call__(self, event: JobEvent) -> None:
        """Handles an event."""
        with self._lock:
            if event.kind == "tasks_committed":
                self._tasks = self._tasks or _Stage("tasks committed", event.at_s, event.done)
                self._tasks.take(event)
            elif event.kind in ("stage_completed", "stage_failed"):
                self._stages.pop(event.stage, None)
            elif event.stage:
                if event.kind == "stage_started" or event.stage not in self._stages:
                    self._stages[event.stage] = _Stage(event.stage, event.at_s)
                self._stages[event.stage].take(event)

    def view(self) -> View | None:
        """Returns the current numbers; None if no stage runs and no tasks were counted."""
        with self._lock:
            shown = next(reversed(self._stages.values())) if self._stages else self._tasks
            return shown.view() if shown else None


@dataclass(frozen=True, slots=True)
class View:
    """Numbers of one stage, or of the committed tasks.

    Attributes:
        rate: Items per second, over the last 15 seconds; None before anything was done.
    """

    words: str
    done: int
    total: int | None
    bytes_done: int
    rate: float | None

    @property
    def left_s(self) -> float | None:
        """Seconds left at that rate; None if unknown."""
        return (self.total - self.done) / self.rate if self.total is not None and self.rate else None

    @property
    def numbers(self) -> str:
        """``1,200 of 5,000, 12.3 MB, 410/s, 9.3 s left``."""
        said = []
        if self.total is not None:
            said.append(f"{self.done:,} of {self.total:,}")
        elif self.done:
            said.append(f"{self.done:,}")
        if self.bytes_done:
            said.append(size(self.bytes_done))
        if self.rate:
            said.append(f"{self.rate:,.0f}/s" if self.rate >= 10 else f"{self.rate:.1f}/s")
        if self.left_s is not None and self.done:
            said.append(f"{seconds(self.left_s)} left")
        return ", ".join(said)


class _Stage:
    def __init__(self, name: str, started_s: float, done: int = 0) -> None:
        self._words = clean(_WORDS.get(name, name.removeprefix("job_stage_").replace("_", " ")))
        self._last = JobEvent(kind="stage_started", job_id="", stage=name, at_s=started_s)
        self._seen: deque[tuple[float, int]] = deque([(started_s, done)])

    def take(self, event: JobEvent) -> None:
        self._last = event
        self._seen.append((event.at_s, event.done))
        while len(self._seen) > 2 and self._seen[1][0] < event.at_s - _WINDOW_S:
            self._seen.popleft()

    def view(self) -> View:
        (began_s, began), (now_s, now) = self._seen[0], self._seen[-1]
        rate = (now - began) / (now_s - began_s) if now > began and now_s > began_s else None
        return View(self._words, self._last.done, self._last.total, self._last.bytes_done, rate)


PLAIN_INTERVAL_S: float = 5.0
"""Seconds between two lines of a plain log."""

_LIVE_INTERVAL_S: Final = 0.2
_JOIN_S: Final = 2.0


class Display:
    """Listener that shows a job's progress on standard error or below a notebook's cell, from the first event to
    its close.

    Bars in a terminal need rich (extra ``cli``); without it there are lines. As a context manager it is reusable.
    `console` is the terminal to draw on; standard error when None.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._board = Board()
        self._console = console
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: JobEvent) -> None:
        """Handles an event; the first one starts the drawing."""
        self._board(event)
        if self._thread is None and not self._stop.is_set():
            # A daemon: a terminal that is not read must not keep the process from ending.
            self._thread = threading.Thread(
                target=self._choose(), args=(self._board, self._stop), name="committer-progress", daemon=True
            )
            self._thread.start()

    async def close(self) -> None:
        """Stops the drawing; waits up to two seconds for it, without blocking the loop."""
        self._stop.set()
        thread = self._thread
        if thread is not None:
            await current_runtime().run_blocking(lambda: thread.join(_JOIN_S))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        # Reusable: a command shows progress before its question and after it.
        self._thread, self._stop, self._board = None, threading.Event(), Board()

    def _choose(self) -> Callable[[Board, threading.Event], None]:
        if self._console is None and _in_notebook():
            return self._draw_in_notebook
        if self._console is None and sys.stderr.isatty() and importlib.util.find_spec("rich") is not None:
            from rich.console import Console

            self._console = Console(stderr=True)
        if self._console is not None and self._console.is_terminal:
            return self._draw_live
        return self._draw_lines

    def _draw_live(self, board: Board, stop: threading.Event) -> None:
        from rich.live import Live

        with Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False) as live:
            for view in _views(board, stop, _LIVE_INTERVAL_S):
                live.update(_bar(view), refresh=True)

    def _draw_in_notebook(self, board: Board, stop: threading.Event) -> None:
        from IPython.display import HTML, display

        shown: Any = None
        for view in _views(board, stop, _LIVE_INTERVAL_S):
            if shown is None:
                shown = display(HTML(_html(view)), display_id=True)
            else:
                shown.update(HTML(_html(view)))
        if shown is not None:
            shown.update(HTML(""))

    def _draw_lines(self, board: Board, stop: threading.Event) -> None:
        started = time.monotonic()
        for view in _views(board, stop, PLAIN_INTERVAL_S):
            numbers = f": {view.numbers}" if view.numbers else ""
            # On a full disk the job continues, and so do later lines.
            with suppress(OSError):
                sys.stderr.write(f"[{seconds(time.monotonic() - started)}] {view.words}{numbers}\n")
                sys.stderr.flush()


def _views(board: Board, stop: threading.Event, interval_s: float) -> Iterator[View]:
    """Yields the numbers every `interval_s` seconds until `stop` is set, while there are any."""
    while not stop.wait(interval_s):
        view = board.view()
        if view is not None:
            yield view


def watched(
    progress: bool | Listener | None, listeners: Iterable[Listener]
) -> tuple[tuple[Listener, ...], Display | None]:
    """Returns the listeners from ``progress=`` and ``listeners=``, and the display to close with the job, if any."""
    listeners = _checked(progress, listeners)
    if progress is None or progress is False:
        return listeners, None
    if progress is True:
        display = Display()
        return (*listeners, display), display
    return (*listeners, progress), None


def _checked(progress: object, listeners: object) -> tuple[Listener, ...]:
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise ConfigurationError(
            f"progress cannot be {progress!r}",
            operation="configure",
            next_step="progress=True shows a bar, progress=CALLABLE calls it with every JobEvent",
        )
    if not isinstance(listeners, Iterable) or not all(map(callable, told := tuple(listeners))):
        raise ConfigurationError(
            f"listeners are callables in a list, not {listeners!r}",
            operation="configure",
            next_step="give listeners=[CALLABLE, ...], or one callable as progress=",
        )
    for listener in (progress, *told):
        refuse_async(listener)
    return told


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    # Only the shell of a notebook's process has a kernel; a terminal's shell draws like a terminal.
    return getattr(shell, "kernel", None) is not None


def _bar(view: View) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1), expand=False)
    bar = ProgressBar(total=view.total or 1, completed=view.done, width=20) if view.total else Text("")
    grid.add_row(Text(view.words), bar, Text(view.numbers, overflow="ellipsis", no_wrap=True))
    return grid


def _html(view: View) -> str:
    bar = f'<progress value="{view.done}" max="{view.total}"></progress> ' if view.total else ""
    return f"<div>{escape(view.words)} {bar}{escape(view.numbers)}</div>"
