"""How far the stages of a job are, in numbers that can be drawn: rate, and time left."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

from committer.events.progress import JobEvent
from committer.readable import clean, seconds, size

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
    """How far the stage is that began last and still runs; without one how many tasks committed.

    Safe to read from another thread. It is a listener for `JobEvent`s.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: dict[str, _Stage] = {}
        self._tasks: _Stage | None = None

    def __call__(self, event: JobEvent) -> None:
        """Takes an event."""
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
        """What can be said now; None while no stage runs and no tasks were counted."""
        with self._lock:
            shown = next(reversed(self._stages.values())) if self._stages else self._tasks
            return shown.view() if shown else None


@dataclass(frozen=True, slots=True)
class View:
    """One stage in numbers, or the committed tasks.

    Attributes:
        words: What the stage does, or what is counted.
        done: Things done.
        total: Things to do; None when unknown.
        bytes_done: Their bytes.
        rate: Things a second, over the last 15 seconds; None before anything was done.
    """

    words: str
    done: int
    total: int | None
    bytes_done: int
    rate: float | None

    @property
    def left_s(self) -> float | None:
        """Seconds left at that rate; None when unknown."""
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
