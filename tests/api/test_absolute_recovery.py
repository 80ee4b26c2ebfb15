"""Jobs with files outside their destination that stopped half way, and records that name places outside."""

from __future__ import annotations

import os

import msgspec
import pytest

import committer
from committer import CommitterConfig, Job, JobSpec
from committer.advice import call
from committer.errors import CommitterError, ConfigurationError, InvalidPathError, JobUndecidedError, RecordError
from committer.paths import StorePath
from committer.records.job_state import Decision, Fact, PlanFile, decode_record, encode_facts, encode_record
from committer.records.manifest import TaskManifest, decode_task_manifest, encode_task_manifest
from committer.records.task_commit import digest_of
from committer.testing.faults import Fault, SimulatedCrash
from tests.job_paths import in_job
from tests.outside import HERE, NEW, ROOT, config, decided, outside, put, run_task, uri
from tests.places import MemoryPlace, Place

# -- rollback and recover ---------------------------------------------------------------------------------------------


async def test_rollback_puts_replaced_files_back(memory: MemoryPlace) -> None:
    put(memory, "p=1/part-0", b"old")
    put(memory, "p=2", b"in the way")
    before = outside(memory, directories=True)
    await decided(memory, existing_target="replace")
    assert outside(memory)["p=1/part-0"] == b"one"
    await memory.recover("j-1", rollback=True, config=config(memory))
    assert outside(memory, directories=True) == before


@pytest.mark.parametrize("rollback", [False, True])
async def test_the_marker_of_a_table_below_a_root_is_taken_away_as_any_old_file(place: Place, rollback: bool) -> None:
    put(place, "p=2/_SUCCESS", b"old")
    before = outside(place, directories=True)
    await decided(place, conflict_mode="replace")
    await place.recover("j-1", rollback=rollback, force=True, config=config(place))
    if rollback:
        assert outside(place, directories=True) == before
    else:
        assert outside(place) == NEW


@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("given", [None, CommitterConfig()], ids=["none", "without"])
async def test_decided_job_needs_its_roots(place: Place, given: CommitterConfig | None, rollback: bool) -> None:
    await decided(place)
    before = place.all_files(), outside(place, directories=True)
    with pytest.raises(ConfigurationError, match="outside its destination") as caught:
        await place.recover("j-1", rollback=rollback, force=True, config=given)
    assert caught.value.outcome == "unchanged"
    where = str(StorePath.of(place.dest))
    again = call("recover", where, "j-1", rollback=rollback, force=True, config={"absolute_roots": [uri(place)]})
    # The call goes on with the storage options of the one that failed.
    assert again.removesuffix(")`") in caught.value.next_step
    assert (place.all_files(), outside(place, directories=True)) == before
    async with place.attach_job("j-1") as job:
        with pytest.raises(ConfigurationError, match="outside its destination"):
            await job.commit()
    assert (place.all_files(), outside(place, directories=True)) == before
    await place.recover("j-1", rollback=rollback, force=True, config=config(place))
    assert outside(place) == ({} if rollback else NEW)


async def test_the_next_step_of_a_failed_commit_names_the_roots(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="j-1", config=config(memory))
    await run_task(memory, job, 0, NEW)
    memory.faults(Fault(kind="forbidden", operation="rename_file", path="part-0", times=None))
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    again = call("recover", memory.dest, "j-1", config={"absolute_roots": [uri(memory)]})
    assert again.removesuffix(")`") in caught.value.next_step


async def test_a_root_above_the_one_of_the_job_will_do(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="j-1", config=CommitterConfig(absolute_roots=(f"/{ROOT}/a/b",)))
    await run_task(memory, job, 0, {"a/b/x": b"x"})
    memory.faults(Fault(kind="forbidden", operation="rename_file", path="a/b/x"))
    with pytest.raises(CommitterError):
        await job.commit()
    with pytest.raises(ConfigurationError, match="outside its destination"):
        await memory.recover("j-1", config=CommitterConfig(absolute_roots=(f"/{ROOT}/a/c",)))
    await memory.recover("j-1", config=config(memory))
    assert outside(memory) == {"a/b/x": b"x"}


async def test_roots_that_nothing_was_written_to_need_not_be_given_again(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="j-1", config=config(memory))
    await run_task(memory, job, 0, {}, HERE)
    memory.faults(Fault(kind="forbidden", operation="rename_file", path="part-0"))
    with pytest.raises(CommitterError):
        await job.commit()
    assert (await memory.recover("j-1")).success
    assert memory.files() == HERE


async def test_undecided_job_is_refused_without_its_roots(place: Place) -> None:
    job = await place.open_job(job_id="j-1", config=config(place))
    await run_task(place, job, 0, NEW, HERE)
    place.faults(
        Fault(kind="crash_before", operation="put", path="/plan-"), Fault(kind="crash_before", path="/decision")
    )
    with pytest.raises(SimulatedCrash):
        await job.commit()
    fresh = place.store.inner
    options = {"store": fresh}
    with pytest.raises(RecordError) as caught:
        await committer.recover(place.dest, "j-1", storage_options=options)
    assert "absolute_roots" in caught.value.next_step
    assert outside(place) == {}
    assert place.files() == {}
    try:
        report = await committer.recover(place.dest, "j-1", storage_options=options, config=config(place))
    except JobUndecidedError:
        pytest.fail("the refusal took the intent of the dead driver away")
    assert report.success
    assert (outside(place), place.files()) == (NEW, HERE)


async def test_spec_carries_the_roots(memory: MemoryPlace) -> None:
    """A process that was handed the spec was handed the roots, as with the places of reports."""
    job = await memory.open_job(config=config(memory))
    spec = JobSpec.decode(job.spec.encode())
    await run_task(memory, spec, 0, NEW)
    async with committer.attach_job(spec, storage_options=memory.options) as other:
        await run_task(memory, other, 1, {"more": b"m"})
        await other.commit(tasks=2)
    assert outside(memory) == {**NEW, "more": b"m"}


async def test_job_joined_without_roots_writes_nothing_outside(memory: MemoryPlace) -> None:
    await memory.open_job(job_id="j-1", config=config(memory))
    async with memory.attach_job("j-1") as job, job.task_attempt(0) as task:
        with pytest.raises(InvalidPathError, match="below none of the roots"):
            task.open_absolute(uri(memory, "x"))
    async with memory.attach_job("j-1", config=config(memory)) as job:
        async with job.task_attempt(0, 1) as task, task.open_absolute(uri(memory, "x")) as file:
            await file.write(b"x")
        await job.commit()
    assert outside(memory) == {"x": b"x"}


async def test_recover_task(memory: MemoryPlace) -> None:
    job = await memory.open_job(delivery="message", config=config(memory))
    message = await run_task(memory, job, 0, NEW)
    assert await job.recover_task(0, 0) == message
    await job.commit([message])


# -- records are not trusted ------------------------------------------------------------------------------------------


async def with_destination(place: Place, target: str, **choices: object) -> Job:
    """A job whose record an enemy changed."""
    job = await place.open_job(job_id="j-1", config=config(place, **choices))
    await run_task(place, job, 0, {"x": b"x"})
    [name] = [name for name in place.all_files() if name.endswith("-manifest.json")]
    manifest: TaskManifest = decode_task_manifest(place.read(name), source=name)
    [entry] = manifest.files
    changed = msgspec.structs.replace(manifest, files=[msgspec.structs.replace(entry, d=target)])
    place.write(name, encode_task_manifest(changed))
    return job


@pytest.mark.parametrize(
    "below",
    [
        "", "/", "/../elsewhere/x", "/%2e%2e/x", "-sibling/x", "/_SUCCESS", "/t/_SUCCESS", "/_temporary/j/decision",
        "/t/_temporary/j/decision", "/t/__magic_job-1/x", "/%5Ftemporary/x", "//_temporary/x", "/a%00b",
    ],
)  # fmt: skip
async def test_record_that_names_a_place_the_roots_do_not_hold(place: Place, below: str) -> None:
    root = StorePath.of(uri(place)).uri
    job = await with_destination(place, f"{root}{below}", existing_target="replace")
    put(place, "t/_temporary/j/decision", b"not mine")
    before = place.all_files(), outside(place)
    with pytest.raises(RecordError) as caught:
        await job.commit()
    assert caught.value.field.startswith("files[0].d")
    assert (place.all_files(), outside(place)) == before
    await job.abort()


@pytest.mark.parametrize("kind", ["target", "blocking", "superseded", "directory"])
@pytest.mark.parametrize("rollback", [False, True])
async def test_facts_that_name_places_the_roots_do_not_hold(place: Place, kind: str, rollback: bool) -> None:
    root = StorePath.of(uri(place)).path
    await decided(place, existing_target="replace")
    below_root = [root + name for name in ("-sibling/x", "/../x", "/t/_temporary/j/x", "/", "//x")]
    names = ["/etc/passwd", "/", os.path.dirname(root), StorePath.of(place.dest).path + "/x", *below_root]
    if kind in ("target", "superseded"):
        names.append(root)
    record = in_job(place, "j-1", "decision")
    decision = decode_record(place.read(record), Decision, source=record)
    for name in names:
        data = encode_facts([Fact(kind=kind, path=name, identity="x", aside=0)])  # type: ignore[arg-type]
        place.write(in_job(place, "j-1", "plan-00009-evil"), data)
        plan = [PlanFile(name="plan-00009-evil", digest=digest_of(data), lines=1)]
        place.write(record, encode_record(msgspec.structs.replace(decision, plan=plan)))
        before = place.all_files(), outside(place)
        with pytest.raises(RecordError):
            await place.recover("j-1", rollback=rollback, force=True, config=config(place))
        assert (place.all_files(), outside(place)) == before


async def test_decision_and_setup_cannot_say_where_else_to_write(place: Place) -> None:
    """Both hold the roots of their job; neither gives them to a process that reads it."""
    await decided(place)
    record = in_job(place, "j-1", "decision")
    decision = decode_record(place.read(record), Decision, source=record)
    hidden = msgspec.structs.replace(decision.config, absolute_roots=())
    place.write(record, encode_record(msgspec.structs.replace(decision, config=hidden)))
    before = outside(place)
    with pytest.raises(RecordError):
        await place.recover("j-1")
    assert outside(place) == before
    for odd in ("https://example.com/x", "relative", "", "//x", "file://user:secret@host/x"):
        strange = msgspec.structs.replace(decision.config)
        msgspec.structs.force_setattr(strange, "absolute_roots", (odd,))
        place.write(record, encode_record(msgspec.structs.replace(decision, config=strange)))
        with pytest.raises((ConfigurationError, RecordError)):
            await place.recover("j-1", config=config(place))
    assert outside(place) == before
