"""Live progress: a bar with rate and time left in a terminal and in a notebook, a line every few seconds elsewhere.

The engine's events only change numbers; a thread of its own draws them. So a terminal that is paused, or a full pipe,
never holds up the event loop and the commit that runs on it.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from committer.errors import ConfigurationError
from committer.events.board import Board, View
from committer.events.progress import JobEvent, Listener, refuse_async
from committer.flow.runtime import current_runtime
from committer.readable import seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_INTERVAL_S: float = 5.0
"""Seconds between two lines where nothing can be drawn over."""

_LIVE_INTERVAL_S: Final = 0.2
_JOIN_S: Final = 2.0


class Display:
    """Draws how far a job is, on standard error or below the cell of a notebook, from its first event until its close.

    It is a listener for `JobEvent`s. Bars in a terminal need rich (extra ``cli``); without it there are lines. As a
    context manager it may be entered again, and draws anew.

    Args:
        console: Where it draws when that is a terminal; standard error when None.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._board = Board()
        self._console = console
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: JobEvent) -> None:
        """Takes an event; the first one starts the drawing."""
        self._board(event)
        if self._thread is None and not self._stop.is_set():
            # A daemon: a terminal that is not read from must not keep the process from ending.
            self._thread = threading.Thread(
                target=self._choose(), args=(self._board, self._stop), name="committer-progress", daemon=True
            )
            self._thread.start()

    async def close(self) -> None:
        """Ends the drawing, and waits for the last of it for two seconds at most; without blocking the loop."""
        self._stop.set()
        thread = self._thread
        if thread is not None:
            await current_runtime().run_blocking(lambda: thread.join(_JOIN_S))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        # A command shows what it looks at, asks, and shows what it does: the next block draws again.
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
            while not stop.wait(_LIVE_INTERVAL_S):
                view = board.view()
                if view is not None:
                    live.update(_bar(view), refresh=True)

    def _draw_in_notebook(self, board: Board, stop: threading.Event) -> None:
        from IPython.display import HTML, display

        shown: Any = None
        while not stop.wait(_LIVE_INTERVAL_S):
            view = board.view()
            if view is None:
                continue
            if shown is None:
                shown = display(HTML(_html(view)), display_id=True)
            else:
                shown.update(HTML(_html(view)))
        if shown is not None:
            shown.update(HTML(""))

    def _draw_lines(self, board: Board, stop: threading.Event) -> None:
        started = time.monotonic()
        while not stop.wait(PLAIN_INTERVAL_S):
            view = board.view()
            if view is not None:
                numbers = f": {view.numbers}" if view.numbers else ""
                # On a full disk the work goes on, and so do later lines.
                with suppress(OSError):
                    sys.stderr.write(f"[{seconds(time.monotonic() - started)}] {view.words}{numbers}\n")
                    sys.stderr.flush()


def watched(
    progress: bool | Listener | None, listeners: Iterable[Listener]
) -> tuple[tuple[Listener, ...], Display | None]:
    """What is told of a job's events, by what a caller gave as ``progress=`` and ``listeners=``.

    Returns:
        The listeners, and among them the display that is to be closed with the job; None without one.

    Raises:
        ConfigurationError: One of them cannot be called.
    """
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
    # Only the shell of a notebook's process has a kernel; that of a terminal draws as a terminal does.
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
