"""A record read from a store is untrusted: nothing is done outside because a file says so (G10)."""

from __future__ import annotations

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, RecordError, TaskError
from committer.records.job_state import (
    Decision,
    Fact,
    JobOutcome,
    JobSetup,
    NamedRecord,
    PlanFile,
    Winner,
    decode_record,
    encode_facts,
    encode_record,
)
from committer.records.manifest import (
    DirectoryEntry,
    FileEntry,
    TaskManifest,
    decode_task_manifest,
    encode_task_manifest,
)
from committer.records.task_commit import digest_of
from committer.stages.decide import decide
from committer.testing.faults import Fault
from tests.job_paths import INTENT, in_job
from tests.places import MemoryPlace, Place

REPLACE = CommitterConfig(existing_target="replace")


async def job_with(place: Place, change, config: CommitterConfig | None = None) -> committer.Job:
    """A job whose one record was changed by an enemy."""
    job = await place.open_job(job_id="job-1", config=config)
    await place.run_task(job, 0, {"part-0": b"x"})
    [name] = [name for name in place.all_files() if name.endswith("-manifest.json")]
    manifest = decode_task_manifest(place.read(name), source=name)
    place.write(name, encode_task_manifest(change(manifest)))
    return job


def with_file(manifest: TaskManifest, **changes: object) -> TaskManifest:
    return msgspec.structs.replace(manifest, files=[msgspec.structs.replace(manifest.files[0], **changes)])


def outside(place: Place) -> dict[str, str]:
    """URIs that no record may act upon."""
    destination = place.layout("job-1").destination
    root = destination.uri
    parent = destination.parent.uri
    scheme = root.partition(":")[0]
    return {
        "parent": f"{parent}/victim",
        "sibling": f"{root}-sibling/victim",
        "itself": root,
        "dots": f"{root}/../victim",
        "encoded dots": f"{root}/%2e%2e/victim",
        "inner dots": f"{root}/a/../../victim",
        "marker": f"{root}/_SUCCESS",
        "below marker": f"{root}/_SUCCESS/x",
        "temporary": f"{root}/_temporary/other/decision",
        "temporary in other case": f"{root}/_Temporary/x",
        "magic": f"{root}/__magic_job-1/x",
        "temporary of a job below": f"{root}/a=1/_temporary/other/decision",
        "magic of a job below": f"{root}/a=1/__magic_job-1/x",
        "other scheme": "https://example.com/victim",
        "other authority": f"{scheme}://elsewhere/table/victim",
        "relative": "victim",
        "empty": "",
        "null byte": f"{root}/a%00b",
        "empty segment": f"{root}//_temporary/x",
        "dot segment": f"{root}/./_temporary/x",
        "encoded slash": f"{root}/_temporary%2Fx",
        "encoded marker": f"{root}/%5FSUCCESS",
    }


@pytest.mark.parametrize("which", list(outside(MemoryPlace())))
@pytest.mark.parametrize("config", [None, REPLACE], ids=["fail", "replace"])
async def test_destination_outside(place: Place, which: str, config: CommitterConfig | None) -> None:
    place.write(in_job(place, "other", "decision"), b"not mine")
    uri = outside(place)[which]
    job = await job_with(place, lambda manifest: with_file(manifest, d=uri), config)
    before = place.all_files()
    with pytest.raises(RecordError) as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert "manifest.json" in caught.value.path
    assert caught.value.field.startswith("files[0].d")
    assert place.all_files() == before
    await job.abort()
    assert place.all_files() == {in_job(place, "other", "decision"): b"not mine"}


@pytest.mark.parametrize("name", ["0", "zzz", "{own}!", "{own}0"])
async def test_source_of_another_task_attempt(place: Place, name: str) -> None:
    """Also where its directory sorts beside the own one, or between a directory and the names in it."""

    def stray(manifest: TaskManifest) -> TaskManifest:
        [file] = manifest.files
        above, _, own = manifest.taskAttemptDir.rpartition("/")
        others = [
            msgspec.structs.replace(file, s=f"{above}/{name.format(own=own)}/part-1", d=f"{file.d}-1"),
            msgspec.structs.replace(file, s=f"{manifest.taskAttemptDir}/part-2", d=f"{file.d}-2"),
        ]
        return msgspec.structs.replace(manifest, files=[file, *others])

    job = await job_with(place, stray)
    before = place.all_files()
    with pytest.raises(RecordError, match="more than one task attempt") as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    # Where nothing can be frozen the record was copied for the decision that was not made.
    assert {name: data for name, data in place.all_files().items() if "/plan-" not in name} == before


@pytest.mark.parametrize("which", list(outside(MemoryPlace())))
async def test_source_outside(place: Place, which: str) -> None:
    place.write(in_job(place, "other", "decision"), b"not mine")
    uri = outside(place)[which]
    job = await job_with(place, lambda manifest: with_file(manifest, s=uri))
    before = place.all_files()
    with pytest.raises(RecordError) as caught:
        await job.commit()
    assert caught.value.field.startswith("files[0].s")
    assert place.all_files() == before


async def test_source_in_another_part_of_the_job(place: Place) -> None:
    layout = place.layout("job-1")
    for path in (layout.setup, layout.decision, layout.tasks, layout.manifest(0), layout.job_attempt_directory):
        job = await job_with(place, lambda manifest, uri=path.uri: with_file(manifest, s=uri))
        with pytest.raises(RecordError):
            await job.commit()
        await job.abort()
    assert place.all_files() == {}


@pytest.mark.parametrize("which", [name for name in outside(MemoryPlace()) if name != "itself"])
async def test_directory_outside(place: Place, which: str) -> None:
    uri = outside(place)[which]
    job = await job_with(
        place, lambda manifest: msgspec.structs.replace(manifest, directories=[DirectoryEntry(d=uri, t=0, l=1)])
    )
    before = place.all_files()
    with pytest.raises(RecordError) as caught:
        await job.commit()
    assert caught.value.field.startswith("directories[0].d")
    assert place.all_files() == before


async def test_records_that_are_broken(place: Place) -> None:
    for data in (b"", b"{", b"{}", b"null", b"[]", b"\xff\xfe", b'{"type":"x","version":1}'):
        job = await place.open_job(job_id="job-1")
        await place.run_task(job, 0, {"part-0": b"x"})
        [name] = [name for name in place.all_files() if name.endswith("-manifest.json")]
        place.write(name, data)
        with pytest.raises(RecordError) as caught:
            await job.commit()
        assert caught.value.outcome == "unchanged"
        await job.abort()
    assert place.all_files() == {}


async def test_record_over_the_size_limit(place: Place) -> None:
    job = await place.open_job(config=CommitterConfig(record_size_limit=2000))
    many = {f"part-{number:03}": b"" for number in range(50)}
    with pytest.raises(TaskError, match="record_size_limit=2000"):
        await place.run_task(job, 0, many)
    unlimited = msgspec.structs.replace(job.spec, config=CommitterConfig())
    await place.run_task(unlimited, 0, many, attempt=1)
    with pytest.raises(RecordError, match="longer than the 2000 bytes"):
        await job.commit()
    assert place.files() == {}


# -- our own records ---------------------------------------------------------------------------------------------


DAMAGE = {
    "no UTF-8": lambda data: data.replace(b'"version"', b'"v\xedrsion"').replace(b'"job-1"', b'"j\xedb-1"'),
    "too deep": lambda data: data.replace(b"{", b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b",", 1),
    "cut off": lambda data: data[:-20],
}


@pytest.mark.parametrize("damage", list(DAMAGE))
@pytest.mark.parametrize("record", ["setup", "decision", "outcome"])
async def test_damaged_records_keep_no_other_job_from_anything(place: Place, record: str, damage: str) -> None:
    """Whatever bytes exist there: the job is shown, every call says what is wrong, and force removes it."""
    await decided_job(place)
    outcome = JobOutcome(job_id="job-1", outcome="committed", driver="d", created="")
    if record == "outcome":
        place.write(in_job(place, "job-1", "outcome"), encode_record(outcome))
    name = in_job(place, "job-1", record)
    place.write(name, DAMAGE[damage](place.read(name)))
    beside = await place.open_job(job_id="job-2")
    await beside.close()
    assert await place.states() == {"job-1": "unknown", "job-2": "open"}
    for rollback in (False, True):
        with pytest.raises(RecordError):
            await place.recover("job-1", rollback=rollback, force=True)
    report = await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
    assert report.removed == ["job-2"]
    await committer.cleanup(place.dest, job_id="job-1", force=True, storage_options=place.options)
    assert not [name for name in place.all_files() if name.startswith("_temporary")]


async def decided_job(place: Place) -> committer.Job:
    job = await place.open_job(job_id="job-1", config=REPLACE)
    await place.run_task(job, 0, {f"part-{number}": b"x" for number in range(4)})
    place.faults(Fault(kind="forbidden", operation="rename_file", path="part-3"))
    with pytest.raises(CommitterError):
        await job.commit()
    return job


def change_decision(place: Place, **changes: object) -> None:
    name = in_job(place, "job-1", "decision")
    decision = decode_record(place.read(name), Decision, source=name)
    place.write(name, encode_record(msgspec.structs.replace(decision, **changes)))


EVIL_NAMES = ["../victim", "_temporary/other/decision", "_SUCCESS", "/etc/passwd", "a/../../x", "", ".", "__magic/x"]


@pytest.mark.parametrize("name", EVIL_NAMES)
@pytest.mark.parametrize("kind", ["target", "blocking", "superseded", "directory"])
@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("apart", [False, True])
async def test_facts_that_name_places_outside(place: Place, name: str, kind: str, rollback: bool, apart: bool) -> None:
    await decided_job(place)
    place.write(in_job(place, "other", "decision"), b"not mine")
    facts = [Fact(kind=kind, path=name, identity="x", aside=0)]  # type: ignore[arg-type]
    if apart:
        data = encode_facts(facts)
        place.write(in_job(place, "job-1", "plan-00009-evil"), data)
        change_decision(place, facts=[], plan=[PlanFile(name="plan-00009-evil", digest=digest_of(data), lines=1)])
    else:
        change_decision(place, facts=facts)
    before = place.all_files()
    with pytest.raises(RecordError):
        await place.recover("job-1", rollback=rollback, force=True)
    assert place.all_files() == before


@pytest.mark.parametrize("kind", ["superseded", "identity", "target"])
@pytest.mark.parametrize(("in_file", "in_decision"), [("", False), ("same", True)], ids=["mixed file", "both"])
@pytest.mark.parametrize("rollback", [False, True])
async def test_facts_of_files_in_another_place_are_refused(
    place: Place, kind: str, in_file: str, in_decision: bool, rollback: bool
) -> None:
    """Each kind is in the decision, or in side files of that kind: a fact elsewhere would be passed over."""
    place.write("old", b"old")
    await decided_job(place)
    facts = [Fact(kind=kind, path="old", identity="x", aside=0)]  # type: ignore[arg-type]
    data = encode_facts(facts)
    place.write(in_job(place, "job-1", "plan-00009-odd"), data)
    file = PlanFile("plan-00009-odd", digest_of(data), 1, kind if in_file else "")  # type: ignore[arg-type]
    change_decision(place, facts=facts if in_decision else [], plan=[file])
    before = place.all_files()
    with pytest.raises(RecordError, match="not where they belong"):
        await place.recover("job-1", rollback=rollback, force=True)
    assert place.all_files() == before


@pytest.mark.parametrize("in_decision", [0, 1, 1000])
@pytest.mark.parametrize("rollback", [False, True])
async def test_what_stood_there_is_known_to_the_recoverer_that_finishes(
    place: Place, monkeypatch: pytest.MonkeyPatch, in_decision: int, rollback: bool
) -> None:
    """Where the facts are few they stand in the decision, else in files beside it."""
    monkeypatch.setattr(decide, "FACTS_IN_DECISION", in_decision)
    place.write("part-0", b"old")
    place.write("part-1", b"older")
    await decided_job(place)
    decision = decode_record(place.read(in_job(place, "job-1", "decision")), Decision, source="")
    assert (len(decision.facts), len(decision.plan)) == ((2, 0) if in_decision == 1000 else (0, 1))
    if rollback and not place.store.capabilities.hard_links:
        return
    await place.recover("job-1", rollback=rollback, force=True)
    old = {"part-0": b"old", "part-1": b"older"}
    assert place.files() == (old if rollback else {f"part-{number}": b"x" for number in range(4)})


async def test_side_file_that_was_changed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "FACTS_IN_DECISION", 0)
    place.write("part-0", b"old")
    await decided_job(place)
    [name] = [name for name in place.all_files() if "/plan-" in name and place.read(name).startswith(b'{"kind')]
    place.write(name, place.read(name).replace(b"part-0", b"part-1"))
    with pytest.raises(RecordError) as caught:
        await place.recover("job-1")
    assert caught.value.outcome == "unknown"


async def test_a_rollback_that_cannot_read_what_to_take_back_ends_nothing(place: Place) -> None:
    """Neither fence nor outcome stands then, so the job can still be finished once its records are in order."""
    await decided_job(place)
    [name] = [name for name in place.all_files() if "plan-" in name]
    record = place.read(name)
    place.write(name, record.replace(b"part-2", b"part-9"))
    before = place.all_files()
    with pytest.raises(RecordError):
        await place.recover("job-1", rollback=True, force=True)
    assert place.all_files() == before
    assert await place.states() == {"job-1": "committing"}
    place.write(name, record)
    place.store.faults.clear()
    assert (await place.recover("job-1")).files_committed == 4


@pytest.mark.parametrize("record", ["../../../victim", "/etc/passwd", "../other/setup", "00/../../x", "", "."])
async def test_winners_outside_the_jobs_directory(place: Place, record: str) -> None:
    await decided_job(place)
    data = b"{}"
    place.write(in_job(place, "other", "setup"), data)
    change_decision(
        place,
        winners=[Winner(record=record, digest=digest_of(data), length=2, files=0, size=0, task="t", task_attempt="a")],
        plan=[],
    )
    before = place.all_files()
    with pytest.raises(CommitterError):
        await place.recover("job-1")
    assert place.all_files() == before


@pytest.mark.parametrize("name", ["../plan", "../other/setup", "/etc/passwd", "a/b"])
async def test_side_files_outside_the_jobs_directory(place: Place, name: str) -> None:
    await decided_job(place)
    place.store.calls.clear()
    change_decision(place, plan=[PlanFile(name=name, digest="0" * 64, lines=1)])
    with pytest.raises(CommitterError):
        await place.recover("job-1")
    directory = str(place.layout("job-1").job_directory)
    assert not [
        call
        for call in place.store.calls
        if call.operation == "read" and not str(call.path).startswith(directory) and call.path.name != "_SUCCESS"
    ]


async def test_intent_that_names_records_outside(place: Place) -> None:
    from committer.records.job_state import Intent

    job = await place.open_job(job_id="job-1", delivery="message")
    await place.run_task(job, 0, {"part-0": b"x"})
    intent = Intent(
        job_id="job-1", driver="d", created="", winners=[NamedRecord("../other/setup", "0" * 64)], tasks=None
    )
    place.write(in_job(place, "job-1", INTENT), encode_record(intent))
    with pytest.raises(CommitterError):
        await place.recover("job-1")
    assert place.files() == {}


async def test_setup_record_cannot_send_us_elsewhere(place: Place) -> None:
    """Where a setup record lies says which job it is, not what it says; reports go only where the caller says."""
    await place.open_job(job_id="job-1")
    victim = MemoryPlace("local")
    name = in_job(place, "job-1", "setup")
    setup = decode_record(place.read(name), JobSetup, source=name)
    evil = msgspec.structs.replace(
        setup.spec,
        destination=victim.dest,
        job_id="other",
        config=CommitterConfig(
            summary_report_directory=f"{victim.dest}/reports", diagnostics_manifest_directory=f"{victim.dest}/kept"
        ),
    )
    place.write(name, encode_record(msgspec.structs.replace(setup, spec=evil)))
    async with place.attach_job("job-1") as job:
        assert job.job_id == "job-1"
        await place.run_task(job, 0, {"part-0": b"x"})
        await job.commit()
    assert place.files() == {"part-0": b"x"}
    assert victim.all_files() == {}


async def test_decision_cannot_send_reports_elsewhere(place: Place) -> None:
    await decided_job(place)
    victim = MemoryPlace("local")
    change_decision(place, config=CommitterConfig(summary_report_directory=f"{victim.dest}/reports"))
    await place.recover("job-1")
    assert victim.all_files() == {}
    assert len(place.files()) == 4


async def test_negative_sizes_and_duplicates(place: Place) -> None:
    def negative(manifest: TaskManifest) -> TaskManifest:
        return with_file(manifest, z=-1)

    def double(manifest: TaskManifest) -> TaskManifest:
        [entry] = manifest.files
        return msgspec.structs.replace(manifest, files=[entry, FileEntry(s=entry.s + "x", d=entry.d, z=0)])

    for change in (negative, double):
        job = await job_with(place, change)
        with pytest.raises(RecordError):
            await job.commit()
        await job.abort()
    assert place.all_files() == {}
