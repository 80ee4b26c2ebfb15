"""Hadoop's snapshot of a commit's counts and timings, as in records."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from committer.records.hadoop_json import decode

UNSET: Final = -1
"""Hadoop's minimum or maximum of a statistic that was never measured."""


class MeanStatistic(msgspec.Struct, frozen=True, gc=False):
    """Running mean; `sum` is in milliseconds for durations."""

    samples: int = 0
    sum: int = 0

    @property
    def mean(self) -> float:
        """The mean; 0 without samples."""
        return self.sum / self.samples if self.samples > 0 else 0.0


class IOStatistics(msgspec.Struct):
    """Counters and measurements by Hadoop's names.

    A duration ``X`` has counters ``X`` and ``X.failures``, and ``.min``, ``.max``, ``.mean`` of both in
    milliseconds; a sample uses its bare name in all maps. In `minimums` and `maximums` -1 means: never measured.
    """

    counters: dict[str, int] = {}
    gauges: dict[str, int] = {}
    minimums: dict[str, int] = {}
    maximums: dict[str, int] = {}
    meanstatistics: dict[str, MeanStatistic] = {}

    def compact(self) -> IOStatistics:
        """Returns a copy without names that were never counted or measured: Java writes 336 such keys into each
        record.
        """
        return IOStatistics(
            counters={name: value for name, value in self.counters.items() if value},
            gauges={name: value for name, value in self.gauges.items() if value},
            minimums={name: value for name, value in self.minimums.items() if value != UNSET},
            maximums={name: value for name, value in self.maximums.items() if value != UNSET},
            meanstatistics={name: mean for name, mean in self.meanstatistics.items() if mean.samples},
        )

    def only(self, name: str) -> IOStatistics:
        """Selects one statistic."""
        selected = IOStatistics()
        for kind in self.__struct_fields__:
            for key, value in getattr(self, kind).items():
                if key == name or key.startswith(f"{name}."):
                    getattr(selected, kind)[key] = value
        return selected


LazyStatistics: TypeAlias = IOStatistics | msgspec.Raw | None
"""Statistics of a record: decoded when written, not yet decoded when read."""


def statistics_of(value: LazyStatistics, *, source: str) -> IOStatistics:
    """Decodes a record's statistics, empty if absent or null; raises RecordError if they are not in Hadoop's form."""
    if isinstance(value, IOStatistics):
        return value
    if value is None or bytes(value) in (b"", b"null"):
        return IOStatistics()
    return decode(bytes(value), IOStatistics, source=source, what="IO statistics", field="iostatistics")
