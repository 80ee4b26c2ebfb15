"""The table of `standing`: whole, drawn in the documentation as it is, and true of what the steps do."""

from __future__ import annotations

import runpy
from itertools import product
from pathlib import Path

import pytest

import committer
from committer.committers import job_commit
from committer.committers.job_call import JobCall
from committer.committers.job_commit import run_step
from committer.committers.position import Position
from committer.committers.standing import LEADS_TO, MEANINGS, STEPS, Seen, Standing, Step, Wish, classify
from committer.errors import CommitterError, TargetExistsError
from committer.testing.faults import Call, SimulatedCrash
from tests.places import MemoryPlace
from tests.protocol_model import table as model

DOCS = Path(committer.__file__).parent.parent / "docs"
FILES = {"a=1/part-0": b"one", "part-1": b"two"}


def test_every_standing_has_a_step_for_every_wish_and_a_meaning() -> None:
    assert set(STEPS) == set(MEANINGS) == set(Standing)
    assert all(set(row) == set(Wish) for row in STEPS.values())
    assert {step for row in STEPS.values() for step in row.values()} == set(Step)


def test_every_standing_that_changes_something_leads_to_an_end() -> None:
    """From wherever a job stands, each wish ends the call within a few steps: nothing goes round."""
    for standing in Standing:
        for wish in Wish:
            seen: list[Standing] = []
            now = standing
            while (after := LEADS_TO.get(STEPS[now][wish])) is not None and after is not now:
                assert after not in seen, (standing, seen)
                seen.append(after)
                now = after


def every_combination() -> list[Seen]:
    opened, decision, outcome = (None, "open", "closed"), (None, "commit", "abort"), (None, "committed", "rolled-back")
    flags = (False, True)
    return [Seen(any(each), *each) for each in product(flags, opened, flags, decision, outcome, flags)]


def test_every_combination_of_records_has_a_standing_and_no_job_acts_without_its_setup_record() -> None:
    acting = {Standing.OPEN, Standing.INTENDED, Standing.DECIDED, Standing.COMMITTED, Standing.ROLLED_BACK}
    for seen in every_combination():
        standing = classify(seen)
        assert (standing is Standing.GONE) == (not seen.anything)
        finishing = seen.setup and seen.decision is not None and seen.outcome is not None
        assert (standing is Standing.KEPT) == (seen.kept and not finishing)
        if standing in acting:
            assert seen.setup, seen
            assert seen.opened == "open", seen
        if standing in (Standing.DECIDED, Standing.COMMITTED, Standing.ROLLED_BACK):
            assert seen.decision == "commit", seen


def test_it_is_the_table_of_the_model() -> None:
    """The engine and the model of the protocol conclude the same from the same records."""
    for seen in every_combination():
        modelled = model.Seen(
            seen.setup, seen.opened, seen.decision, seen.outcome, seen.kept, seen.intent, seen.anything
        )
        assert classify(seen).value == model.classify(modelled), seen


def test_the_page_is_drawn_from_the_table() -> None:
    drawn = runpy.run_path(str(DOCS / "draw_job_states.py"))["page"]()
    assert (DOCS / "job-states.md").read_text(encoding="utf-8") == drawn, "run python docs/draw_job_states.py"


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Standing, Step, Standing | None]]:
    """Every step that is taken: where the job stood, and where it stands then; None where the call ended."""
    taken: list[tuple[Standing, Step, Standing | None]] = []

    async def noting(call: JobCall, step: Step, position: Position) -> object:
        after = await run_step(call, step, position)
        taken.append((position.standing, step, after.standing if isinstance(after, Position) else None))
        return after

    monkeypatch.setattr(job_commit, "run_step", noting)
    return taken


async def _crash_before(place: MemoryPlace, job: committer.Job, record: str) -> None:
    """The driver of a job dies right before it writes a record, or moves a directory."""

    async def before(call: Call) -> None:
        target = call.destination if call.operation == "rename_file" else call.path
        if target is not None and target.name == record and call.operation.startswith(("put", "rename")):
            raise SimulatedCrash

    place.store.before_call = before
    with pytest.raises(SimulatedCrash):
        await job.commit()
    place.store.before_call = None


async def test_a_commit_passes_through_the_table(memory: MemoryPlace, led: list[object]) -> None:
    async with memory.open_job(job_id="j") as job:
        await memory.run_task(job, 0, FILES)
        await job.commit()
    await memory.recover("j")
    assert led == [
        (Standing.OPEN, Step.DECIDE, Standing.DECIDED),
        (Standing.DECIDED, Step.PUBLISH, Standing.COMMITTED),
        (Standing.COMMITTED, Step.FINISH, None),
        (Standing.GONE, Step.REPORT, None),
    ]


@pytest.mark.parametrize(
    ("record", "rollback", "steps"),
    [
        ("decision", False, [Step.DECIDE_AS_INTENDED, Step.PUBLISH, Step.FINISH]),
        ("decision", True, [Step.DECIDE_AGAINST, Step.CLEAN_UP_ABORTED]),
        ("outcome", False, [Step.PUBLISH, Step.FINISH]),
        ("outcome", True, [Step.TAKE_BACK, Step.UNDO, Step.CLEAN_UP_UNDONE]),
        ("_SUCCESS", False, [Step.FINISH]),
        ("_SUCCESS", True, [Step.REFUSE_COMMITTED]),
    ],
)
async def test_a_recovery_goes_on_from_where_a_driver_died(
    memory: MemoryPlace,
    led: list[tuple[Standing, Step, Standing | None]],
    record: str,
    rollback: bool,
    steps: list[Step],
) -> None:
    job = await memory.open_job(job_id="j")
    await memory.run_task(job, 0, FILES)
    await _crash_before(memory, job, record)
    led.clear()
    refused = None
    try:
        await memory.recover("j", rollback=rollback)
    except CommitterError as error:
        refused = error
    if steps == [Step.REFUSE_COMMITTED]:
        assert refused is not None
        return
    assert refused is None
    assert [step for _, step, _ in led] == steps
    for _stood, step, stands in led:
        assert stands in (None, LEADS_TO[step])


async def test_a_refused_publish_is_taken_back(memory: MemoryPlace, led: list[object]) -> None:
    job = await memory.open_job(job_id="j")
    await memory.run_task(job, 0, FILES)
    written = False

    async def before(call: Call) -> None:
        nonlocal written
        if call.path.name == "outcome" or (call.operation == "rename_file" and not written):
            written = True
            memory.write("part-1", b"another job's")

    memory.store.before_call = before
    with pytest.raises(TargetExistsError) as refusal:
        await job.commit()
    assert refusal.value.outcome == "unchanged"
    assert led[:3] == [
        (Standing.OPEN, Step.DECIDE, Standing.DECIDED),
        (Standing.REFUSED, Step.TAKE_BACK, Standing.ROLLED_BACK),
        (Standing.ROLLED_BACK, Step.UNDO, Standing.UNDONE),
    ]
    assert memory.read("part-1") == b"another job's"
