"""Calls of `committer.spark.write` that one of Spark's own writers serves, while they run.

The call and the commit protocol meet in this process, on two threads: an option of the write names the call, and by it
the job side finds what the call decided, and leaves what came of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from committer.committers.results import JobReport
from committer.config import CommitterConfig
from committer.errors import CommitterError

CALL: Final = "committer.spark.write"
"""The option that names the call."""


class RunningWrite:
    """One call.

    Attributes:
        name: Its name, which nothing else has.
        config: The commit's choices, the save mode's among them.
        job_id: The job, once it is set up; empty before.
        report: How its commit ended, if it did.
        error: Why its setup or commit failed, if it did.
    """

    def __init__(self, config: CommitterConfig) -> None:
        self.name: str = uuid.uuid4().hex
        self.config = config
        self.job_id: str = ""
        self.report: JobReport | None = None
        self.error: CommitterError | None = None

    def committed(self, report: JobReport) -> None:
        """Notes how the commit ended."""
        self.report = report

    def failed(self, error: CommitterError) -> None:
        """Notes why setup or commit failed."""
        self.error = error


_running: dict[str, RunningWrite] = {}


class _Setup(msgspec.Struct, frozen=True):
    job_id: str
    options: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True):
    job_id: str


class _End(msgspec.Struct, frozen=True):
    spec: str


@contextmanager
def running(config: CommitterConfig) -> Iterator[RunningWrite]:
    """A call, known while the block runs."""
    call = RunningWrite(config)
    _running[call.name] = call
    try:
        yield call
    finally:
        del _running[call.name]


def call_of(operation: str, request: str) -> RunningWrite | None:
    """The call whose write Java asks about; None where it is not one of `committer.spark.write`."""
    if not _running:
        return None
    if operation == "setup":
        asked = msgspec.json.decode(request, type=_Setup)
        call = _running.get(asked.options.get(CALL, ""))
        if call is not None:
            call.job_id = asked.job_id
        return call
    spec = msgspec.json.decode(request, type=_End).spec
    job_id = msgspec.json.decode(spec, type=_Spec).job_id
    return next((call for call in list(_running.values()) if call.job_id == job_id), None)
