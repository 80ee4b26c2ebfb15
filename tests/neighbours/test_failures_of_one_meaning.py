"""Several workers that meet the same thing tell it as one error of its type."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.committers.failures import as_one
from committer.errors import (
    JobDecidedError,
    JobStateError,
    JobUndecidedError,
    MultipleError,
    OutcomeUnknownError,
    PreflightError,
    RecordError,
    StoreNotFoundError,
    TargetExistsError,
)
from committer.testing.faults import Call
from tests.neighbours.meeting import Table

TWO = {"p=1/a": b"a", "p=2/b": b"b"}


async def test_records_that_are_none() -> None:
    table = Table("local")
    job = await committer.open_job(table.dest, job_id="job", storage_options=table.options)
    for number in range(3):
        async with job.task_attempt(number) as task, task.open(f"part-{number}") as file:
            await file.write(b"x")
    for name in table.all_files():
        if name.endswith("-manifest.json"):
            table.write(name, b"not json")
    with pytest.raises(RecordError) as caught:
        await job.commit()
    assert len(caught.value.causes) > 1
    assert caught.value.outcome == "unchanged"
    assert "more)" in str(caught.value)
    await job.abort()
    await job.close()


async def test_outcomes_that_are_unknown() -> None:
    table = Table("local")
    party = await table.job("job", TWO, CommitterConfig(io_concurrency=2))

    async def before(call: Call) -> None:
        if call.operation == "rename_file" and "/00/tasks/" in str(call.path):
            for name in table.all_files():
                if "/00/tasks/" in name:
                    table.remove(name)

    party.store.before_call = before
    await party.commit()
    assert isinstance(party.error, OutcomeUnknownError), party.error
    assert party.error.outcome == "unknown"
    assert len(party.error.causes) == 2
    assert "recover(" in party.error.next_step


def test_failures_of_several_meanings_stay_several() -> None:
    record, other = RecordError("one"), OutcomeUnknownError("two")
    assert as_one(record) is record
    mixed = MultipleError.of("x", [record, other])
    assert as_one(mixed) is mixed
    store = MultipleError.of("x", [StoreNotFoundError("one"), StoreNotFoundError("two")])
    assert as_one(store) is store
    same = as_one(MultipleError.of("x", [other, OutcomeUnknownError("three")]))
    assert type(same) is OutcomeUnknownError
    assert same.message == "two (and 1 more)"
    assert other.message == "two"


@pytest.mark.parametrize("reverse", [False, True])
def test_failures_of_a_class_and_one_below_it_are_of_the_class(*, reverse: bool) -> None:
    """`except PreflightError` catches each of them; `TargetExistsError` is true of one alone."""
    causes = [PreflightError("one", path="p"), TargetExistsError("two", path="t")]
    if reverse:
        causes.reverse()
    one = as_one(MultipleError.of("x", causes))
    assert type(one) is PreflightError
    assert (one.message, one.path) == ("one (and 1 more)", "p")
    assert one.causes == tuple(causes)
    assert causes[reverse].message == "one"


def test_failures_of_classes_side_by_side_are_of_the_one_above_them() -> None:
    decided = JobDecidedError("one", operation="abort", path="p", next_step="look", outcome="partial")
    one = as_one(MultipleError.of("x", [decided, JobUndecidedError("two"), JobDecidedError("three")]))
    assert type(one) is JobStateError
    assert (one.message, one.operation, one.path, one.next_step) == ("one (and 2 more)", "abort", "p", "look")
    assert one.outcome == "partial"


def test_record_errors_of_a_stage_of_its_own_are_record_errors() -> None:
    class OwnError(RecordError):
        def __init__(self, record: str) -> None:
            super().__init__(f"{record} is none")

    one = as_one(MultipleError.of("x", [OwnError("a"), RecordError("b is none")]))
    assert type(one) is RecordError
    assert one.message == "b is none (and 1 more)"
    assert type(as_one(MultipleError.of("x", [OwnError("a"), OwnError("b")]))) is OwnError
    assert isinstance(as_one(MultipleError.of("x", [OwnError("a"), StoreNotFoundError("b")])), MultipleError)
