"""Several workers that meet the same thing tell it as one error of its type."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.committers.failures import as_one
from committer.errors import MultipleError, OutcomeUnknownError, RecordError, StoreNotFoundError
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
