"""Counts and timings, under Hadoop's names and by its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from committer.events.names import FAILURES, MAXIMUM, MEAN, MINIMUM
from committer.flow.runtime import Runtime, current_runtime
from committer.records.statistics import UNSET, IOStatistics, MeanStatistic


class Statistics:
    """Counts and timings of one job or task attempt. Used by one thread."""

    def __init__(self, clock: Runtime | None = None) -> None:
        self._monotonic = (clock or current_runtime()).monotonic
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, int] = {}
        self._minimums: dict[str, int] = {}
        self._maximums: dict[str, int] = {}
        self._means: dict[str, list[int]] = {}
        # Timed calls that are not folded into the above yet: number, total milliseconds, minimum, maximum.
        self._done: dict[str, list[int]] = {}
        # Running timed blocks: Hadoop counts a block when it begins, so a record written inside it includes it.
        self._running: dict[str, int] = {}

    def count(self, name: str, n: int = 1) -> None:
        """Adds to a counter."""
        self._counters[name] = self._counters.get(name, 0) + n

    def counter(self, name: str) -> int:
        """Returns a counter's value; 0 if nothing was counted."""
        self._fold()
        return self._counters.get(name, 0)

    def sample(self, name: str, value: int) -> None:
        """Adds a value to the counter `name`, and to its minimum, maximum and mean."""
        self.count(name, value)
        self._measured(name, name, name, (1, value, value, value))

    def timed(self, name: str, *, since: float | None = None) -> Timed:
        """Returns a context manager that counts `name` at its beginning and times its block.

        A block that raises, cancellation included, counts `name` and ``name.failures``, and its time goes to the
        failures alone. Times are whole milliseconds, rounded down. `since` is an earlier start on this object's
        clock.
        """
        return Timed(self, name, since)

    def duration(self, name: str, seconds: float) -> None:
        """Adds a duration without counting it, as Hadoop does for time spent waiting for a permit."""
        milliseconds = int(seconds * 1000)
        self._measured(name + MINIMUM, name + MAXIMUM, name + MEAN, (1, milliseconds, milliseconds, milliseconds))

    def done(self, name: str, seconds: float, times: int = 1) -> None:
        """Counts `times` successful blocks of `seconds` each: like `timed`, for a caller that measures."""
        milliseconds = int(seconds * 1000)
        known = self._done.get(name)
        if known is None:
            self._done[name] = [times, times * milliseconds, milliseconds, milliseconds]
            return
        known[0] += times
        known[1] += times * milliseconds
        if milliseconds < known[2]:
            known[2] = milliseconds
        elif milliseconds > known[3]:
            known[3] = milliseconds

    def merge(self, snapshot: IOStatistics) -> None:
        """Adds another snapshot.

        Counters and gauges add (a negative counter adds nothing), minimums and maximums keep the extreme (-1 is no
        value), means add samples and sums.
        """
        # Runs per record, for each of some fifty names: without a call each.
        counters, minimums, maximums = self._counters, self._minimums, self._maximums
        for name, value in snapshot.counters.items():
            if value > 0:
                counters[name] = counters.get(name, 0) + value
        for name, value in snapshot.gauges.items():
            self._gauges[name] = self._gauges.get(name, 0) + value
        for name, value in snapshot.minimums.items():
            if value != UNSET and value <= minimums.get(name, value):
                minimums[name] = value
        for name, value in snapshot.maximums.items():
            if value != UNSET and value >= maximums.get(name, value):
                maximums[name] = value
        for name, mean in snapshot.meanstatistics.items():
            if mean.samples > 0:
                self._add_to_mean(name, mean.samples, mean.sum)

    def snapshot(self) -> IOStatistics:
        """Returns a copy, with running blocks counted, without names that were never counted or measured."""
        self._fold()
        counters = dict(self._counters)
        for name, running in self._running.items():
            counters[name] = counters.get(name, 0) + running
        return IOStatistics(
            counters={name: value for name, value in counters.items() if value},
            gauges={name: value for name, value in self._gauges.items() if value},
            minimums=dict(self._minimums),
            maximums=dict(self._maximums),
            meanstatistics={name: MeanStatistic(samples, total) for name, (samples, total) in self._means.items()},
        )

    def _fold(self) -> None:
        """Adds the calls in `_done` to counters, means and extremes."""
        gathered, self._done = self._done, {}
        for name, values in gathered.items():
            self.count(name, values[0])
            self._measured(name + MINIMUM, name + MAXIMUM, name + MEAN, values)

    def _measured(self, minimum: str, maximum: str, mean: str, values: Sequence[int]) -> None:
        """Adds values, by their number, total, least and greatest."""
        samples, total, least, most = values
        self._add_to_mean(mean, samples, total)
        # -1 means "never measured" to every reader, so a negative sample cannot be an extreme.
        if least >= 0:
            self._minimums[minimum] = min(least, self._minimums.get(minimum, least))
            self._maximums[maximum] = max(most, self._maximums.get(maximum, most))

    def _add_to_mean(self, name: str, samples: int, total: int) -> None:
        mean = self._means.get(name)
        if mean is None:
            self._means[name] = [samples, total]
        else:
            mean[0] += samples
            mean[1] += total


@dataclass(slots=True)
class Timed:
    """Timer of one block; see `Statistics.timed`."""

    statistics: Statistics
    name: str
    since: float | None
    started: float = 0.0

    def __enter__(self) -> None:
        running = self.statistics._running
        running[self.name] = running.get(self.name, 0) + 1
        self.started = self.statistics._monotonic() if self.since is None else self.since

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        statistics, name = self.statistics, self.name
        statistics._running[name] -= 1
        elapsed = statistics._monotonic() - self.started
        if kind is None:
            statistics.done(name, elapsed)
            return
        statistics.count(name)
        statistics.count(name + FAILURES)
        statistics.duration(name + FAILURES, elapsed)
