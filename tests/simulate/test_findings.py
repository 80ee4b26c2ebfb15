"""Each counter-example that the search found, as small as it was made."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from committer import CommitterConfig
from committer.spec import Delivery
from committer.stores.uploads import BLOCK_LISTS
from committer_testing.simulate.exhaustive import small
from committer_testing.simulate.ledger import Attempt, Ledger
from committer_testing.simulate.result import Result
from committer_testing.simulate.scenario import (
    EARLIER_SUCCESS,
    Event,
    EventKind,
    JobPlan,
    Scenario,
    Trouble,
    draw_scenario,
)
from committer_testing.simulate.simulation import simulate
from committer_testing.simulate.watch import JobWatch
from committer_testing.simulate.worlds import OUT, MemoryWorld
from tests.simulate.mutants import apply
from tests.sweeps import Share


def call_of(scenario: Scenario, process: str, operation: str, path: str) -> tuple[str, int]:
    """The first call of its kind, in a run in which no fault is met."""
    for line in simulate(scenario).history():
        _time, who, number, found, where, *_ = f"{line} ?".split()
        if who == process and found == operation and where.rstrip(":").endswith(path):
            return who, int(number)
    raise AssertionError(f"{process} never calls {operation} {path}")


def clean(result: Result) -> None:
    assert not result.violations, "\n".join([str(result.violations), *result.history()])


def test_decision_that_arrives_when_the_job_is_cleaned_up() -> None:
    scenario = small("gcs", "message", "append")
    place = call_of(scenario, "j0.driver", "put", "/decision")
    clean(simulate(Scenario(0, "gcs", scenario.jobs, before=scenario.before, forced={place: "again"})))


def test_decision_that_arrives_where_a_task_outlived_the_cleanup() -> None:
    plan = JobPlan("j0", delivery="message", tasks=1, files=1, patience_s=0.1, mischief=0.5)
    for seed in (3, 10, 11):
        place = call_of(Scenario(seed, "gcs", (plan,), forced={}), "j0.driver", "put", "/decision")
        clean(simulate(Scenario(seed, "gcs", (plan,), forced={place: "again"})))


def test_record_that_arrives_after_it_was_saved_again() -> None:
    plan = JobPlan("j0", delivery="message", tasks=1, files=1)
    quiet = Scenario(0, "adls", (plan,), forced={})
    lines = [line.split() for line in simulate(quiet).history() if "j0.t0.0 " in line]
    save = next(int(line[2]) for line in lines if line[3] == "put")
    renaming = call_of(quiet, "j0.driver", "rename_file", ".csv")
    for ahead in range(3):
        forced = {("j0.t0.0", save): "late", (renaming[0], renaming[1] + ahead): "crash_before"}
        clean(simulate(Scenario(ahead, "adls", (plan,), forced=forced)))  # type: ignore[arg-type]


def test_file_that_is_created_again_at_its_source() -> None:
    plan = JobPlan("j0", tasks=1, files=2)
    for seed in range(6):
        quiet = Scenario(seed, "local", (plan,), forced={})
        lines = [line.split() for line in simulate(quiet).history() if "j0.t0.0 " in line]
        creates = [int(line[2]) for line in lines if line[3] == "open_writer"]
        renames = [
            int(line.split()[2]) for line in simulate(quiet).history() if "j0.driver " in line and ".csv ->" in line
        ]
        forced = {("j0.t0.0", creates[0]): "again", ("j0.driver", renames[-1]): "crash_before"}
        clean(simulate(Scenario(seed, "local", (plan,), forced=forced)))  # type: ignore[arg-type]


def test_rollback_that_stands_still_while_another_driver_commits() -> None:
    plan = JobPlan("j0", delivery="message", tasks=1, files=1)
    events = (Event(0, "roll_back", "j0", True, 0.05), Event(1, "recover", "j0", True, 1.0))
    quiet = Scenario(0, "adls", (plan,), forced={})
    decide = call_of(quiet, "j0.driver", "put", "/decision")
    for number in range(1, 8):
        forced = {decide: "crash_before", ("op0", number): "slow"}
        clean(simulate(Scenario(0, "adls", (plan,), events, forced=forced)))  # type: ignore[arg-type]


def test_driver_that_wakes_after_a_recoverer_rolled_back(share: Share) -> None:
    plan = JobPlan("j0", config=CommitterConfig(), tasks=1, files=1)
    before = {f"{OUT}/_SUCCESS": EARLIER_SUCCESS, f"{OUT}/day=0/old.csv": b"old"}
    for at in share.of(range(10, 40)):
        events = (
            Event(0, "freeze", "j0", True, at * 0.01, 4.0),
            Event(1, "squatter", "j0", True, at * 0.01 + 0.05),
            Event(2, "recover", "j0", True, 1.0),
        )
        clean(simulate(Scenario(at, "gcs", (plan,), events, before=before, forced={})))


def test_success_file_whose_rename_arrives_again_after_the_rollback() -> None:
    # Nothing fences such requests off where directories are not real: the store itself must refuse them.
    plan = JobPlan("j0", delivery="message", tasks=1, files=2)
    before = {f"{OUT}/_SUCCESS": EARLIER_SUCCESS}
    aside = call_of(Scenario(0, "gcs", (plan,), before=before, forced={}), "j0.driver", "rename_file", "out/_SUCCESS")
    for at in range(10, 40):
        events = (Event(0, "squatter", "j0", True, at * 0.01),)
        clean(simulate(Scenario(at, "gcs", (plan,), events, before=before, forced={aside: "again"})))


@pytest.mark.parametrize("kind", ["adls", "gcs", "hdfs", "local"])
@pytest.mark.parametrize("old", ["day=1/part-j0-0-1.csv", "day=1/old.csv"], ids=["same name", "other name"])
def test_job_that_can_only_go_forward_and_meets_a_strangers_file(kind: str, old: str) -> None:
    # Only a job that replaces under the same name, where the old file cannot be kept, needs an operator to make way.
    plan = JobPlan("j0", delivery="message", config=CommitterConfig(conflict_mode="replace"), tasks=1, files=2)
    helped = 0
    for at in range(14, 40):
        events = (Event(0, "squatter", "j0", True, at * 0.01),)
        result = simulate(Scenario(at, kind, (plan,), events, before={f"{OUT}/{old}": b"old"}, forced={}))
        clean(result)
        helped += any("removes day=0/part-j0-0-0.csv, as it was told" in line for line in result.history())
    assert bool(helped) is (kind in ("adls", "gcs", "hdfs") and old.endswith("-1.csv"))


REPLACING = JobPlan("j0", delivery="message", config=CommitterConfig(conflict_mode="replace"), tasks=1, files=1)


def test_recoverer_beside_a_driver_that_decides() -> None:
    # There must be no moment without an entry: another job that looks just then commits beside the replacing job.
    recovery = (Event(0, "recover", "j0", True, 0.02),)
    for ahead in range(3, 7):
        append = JobPlan("j1", delivery="message", tasks=1, files=1, starts_s=0.02 * ahead)
        clean(simulate(Scenario(2, "adls", (REPLACING, append), recovery, forced={})))


def test_recoverer_that_dies_beside_a_driver_that_decided() -> None:
    append = JobPlan("j1", delivery="message", tasks=1, files=1, starts_s=1.0)
    events = (Event(0, "recover", "j0", True, 0.02), Event(1, "freeze", "j0", True, 0.3, 4.0))
    for number in range(5, 16):
        forced = {("op0", number): "crash_after"}
        clean(simulate(Scenario(2, "local", (REPLACING, append), events, forced=forced)))  # type: ignore[arg-type]


def numbers(result: Result, process: str, operation: str, path: str) -> list[int]:
    """The numbers of a process's calls of one kind, in the order they came."""
    lines = [line.split() for line in result.history()]
    return [int(line[2]) for line in lines if line[1] == process and line[3] == operation and path in " ".join(line)]


def test_success_file_of_the_job_that_a_slow_driver_takes_for_the_old_one() -> None:
    plan = JobPlan("j0", delivery="message", tasks=1, files=1)
    before = {f"{OUT}/_SUCCESS": EARLIER_SUCCESS}
    quiet = Scenario(0, "hdfs", (plan,), before=before, forced={})
    aside = call_of(quiet, "j0.driver", "rename_file", "out/_SUCCESS")
    events = (Event(0, "recover", "j0", True, 0.25),)
    for seed in range(5):
        slow = Scenario(seed, "hdfs", (plan,), events, before=before, forced={aside: "slow"})
        finished = numbers(simulate(slow), "op0", "put", "/outcome")[-1]
        forced = {aside: "slow", ("op0", finished): "crash_after"}
        clean(simulate(Scenario(seed, "hdfs", (plan,), events, before=before, forced=forced)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["hdfs", "adls", "local"])
def test_file_that_came_since_the_decision_and_the_job_is_rolled_back(kind: str) -> None:
    plan = JobPlan("j0", delivery="message", config=CommitterConfig(existing_target="replace"), tasks=1, files=1)
    events = (Event(0, "squatter", "j0", True, 0.25), Event(1, "roll_back", "j0", True, 1.0))
    for seed in range(5):
        quiet = simulate(Scenario(seed, kind, (plan,), events, forced={}))
        clean(quiet)
        place = ("j0.driver", numbers(quiet, "j0.driver", "rename_file", "-> out/day=0/part-j0-0-0.csv")[-1])
        clean(simulate(Scenario(seed, kind, (plan,), events, forced={place: "crash_after"})))


@pytest.mark.parametrize("kind", ["hdfs", "local"])
def test_file_in_the_way_that_cannot_come_back_is_kept_until_an_operator_takes_it(kind: str) -> None:
    plan = JobPlan("j0", delivery="message", config=CommitterConfig(existing_target="replace"), tasks=2, files=1)
    kept = 0
    for at in range(15, 45):
        events = (Event(0, "squatter", "j0", True, at * 0.01),)
        result = simulate(Scenario(at, kind, (plan,), events, before={f"{OUT}/day=0": b"a file"}, forced={}))
        clean(result)
        kept += any("could not be put back" in line for line in result.history())
    assert kept


def test_file_below_a_target_whose_move_had_no_answer_is_not_missed() -> None:
    plan = JobPlan("j0", delivery="message", config=CommitterConfig(existing_target="replace"), tasks=2, files=1)
    before = {f"{OUT}/{plan.names(0, 0)[0]}/inner": b"a directory"}
    kind = "gcs-no-identity"
    move = call_of(Scenario(0, kind, (plan,), before=before, forced={}), "j0.driver", "rename_file", "/inner")
    for later in range(4):
        forced = {(move[0], move[1] + later): "crash_after"}
        clean(simulate(Scenario(0, kind, (plan,), before=before, forced=forced)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["gcs", "gcs-no-identity", "no-identity", "adls"])
@pytest.mark.parametrize(
    ("delivery", "first"),
    [
        ("listing", "/setup"),
        ("listing", "/00"),
        ("listing", "/00/manifests"),
        ("message", "/setup"),
        ("message", "/00"),
    ],
)
def test_decision_that_arrives_after_the_cleanup_beside_what_else_came_late(
    kind: str, delivery: Delivery, first: str
) -> None:
    plan = JobPlan("j0", delivery=delivery, tasks=1, files=1)
    before = {f"{OUT}/_SUCCESS": EARLIER_SUCCESS}
    operation = "put" if first == "/setup" else "make_directory"
    late = call_of(Scenario(0, kind, (plan,), before=before, forced={}), "j0.driver", operation, first)
    shifted = simulate(Scenario(0, kind, (plan,), before=before, forced={late: "late"}))
    decided = ("j0.driver", numbers(shifted, "j0.driver", "put", "/decision")[0])
    clean(simulate(Scenario(0, kind, (plan,), before=before, forced={late: "late", decided: "late"})))


@pytest.mark.parametrize("kind", ["hdfs", "local"])
def test_old_file_that_is_moved_aside_while_a_late_driver_decides_and_another_rolls_back(
    kind: str, share: Share
) -> None:
    # The late driver must not make again the place that the rollback has just fenced off.
    plan = JobPlan("j0", delivery="message", config=CommitterConfig(existing_target="replace"), tasks=1, files=1)
    before = {f"{OUT}/day=0": b"a file"}
    quiet = Scenario(1, kind, (plan,), before=before, forced={})
    aside = call_of(quiet, "j0.driver", "rename_file", "out/day=0")
    for at in share.of(range(2, 8)):
        for later in range(1, 6):
            events = (
                Event(0, "recover", "j0", True, at * 0.02),
                Event(1, "roll_back", "j0", True, (at + later) * 0.02),
            )
            forced = {aside: "unavailable"}
            clean(simulate(Scenario(1, kind, (plan,), events, before=before, forced=forced)))  # type: ignore[arg-type]


def test_directory_at_a_target_that_cannot_be_kept_is_not_rolled_back() -> None:
    plan = JobPlan("j0", config=CommitterConfig(existing_target="replace"), tasks=2, files=1)
    before = {f"{OUT}/{plan.names(1, 0)[0]}/inner": b"a directory"}
    for at in range(28, 48):
        events = (Event(0, "squatter", "j0", True, at * 0.01),)
        clean(simulate(Scenario(at, "gcs", (plan,), events, before=before, forced={})))


@pytest.mark.parametrize("kind", ["adls", "gcs", "gcs-no-identity"])
@pytest.mark.parametrize("operator", ["recover", "roll_back"])
@pytest.mark.parametrize("death", [None, "crash_after", "crash_before"])
def test_decision_that_arrives_again_for_a_slow_driver_when_a_recoverer_ended_its_job(
    kind: str, operator: EventKind, death: Trouble | None, share: Share
) -> None:
    plan = JobPlan("j0", delivery="message", tasks=1, files=1)
    quiet = Scenario(0, kind, (plan,), forced={})
    decided = call_of(quiet, "j0.driver", "put", "/decision")
    driver, renaming = call_of(quiet, "j0.driver", "rename_file", ".csv")
    events = (Event(0, operator, "j0", True, 0.3),)
    for slow in share.of(range(renaming, renaming + 6)):
        for ahead in (2, 3) if death else (0,):
            forced: dict[tuple[str, int], Trouble] = {decided: "again", (driver, slow): "slow"}
            if death is not None:
                forced[driver, slow + ahead] = death
            clean(simulate(Scenario(0, kind, (plan,), events, forced=forced)))


def test_directory_that_a_zombie_makes_again_when_its_job_is_over_is_no_job_of_hadoops(share: Share) -> None:
    zombies = JobPlan("j0", tasks=1, files=2, patience_s=0.3, mischief=0.2)
    # `_SUCCESS` speaks of the later job, so that it does not tell how the first one ended.
    later = JobPlan("j1", delivery="message", tasks=1, files=1, starts_s=1.0)
    for seed in share.of((4, 13, 14, 15, 19, 36)):
        for at in range(16, 36, 4):
            events = (Event(0, "roll_back", "j0", False, at * 0.1),)
            clean(simulate(Scenario(seed, "adls", (zombies, later), events, forced={})))


@pytest.mark.parametrize("kind", ["hdfs", "local"])
def test_old_success_file_whose_move_arrives_late_when_another_job_wrote_its_own(kind: str, share: Share) -> None:
    first = JobPlan("j0", delivery="message", tasks=1, files=1)
    second = JobPlan("j1", delivery="message", tasks=1, files=1, starts_s=0.25)
    before = {f"{OUT}/_SUCCESS": EARLIER_SUCCESS}
    quiet = simulate(Scenario(0, kind, (first, second), before=before, forced={}))
    move = numbers(quiet, "j0.driver", "rename_file", "/_SUCCESS ->")[0]
    for still in share.of(range(20, 36, 3)):
        # The first one stands still before that move, and takes its time before its cleanup.
        events = (Event(0, "freeze", "j0", True, still * 0.01, 1.0),)
        for slow in range(9, 13):
            forced: dict[tuple[str, int], Trouble] = {("j0.driver", move): "late", ("j0.driver", move + slow): "slow"}
            clean(simulate(Scenario(0, kind, (first, second), events, before=before, forced=forced)))


@pytest.mark.parametrize("kind", ["adls", "gcs", "hdfs", "local"])
@pytest.mark.parametrize("death", ["crash_before", "crash_after"])
def test_published_file_whose_source_a_late_request_made_again_is_taken_back(
    kind: str, death: Trouble, share: Share
) -> None:
    plan = JobPlan("j0", delivery="message", tasks=1, files=2)
    events = (Event(0, "roll_back", "j0", True, 4.5),)
    for seed in share.of(range(6)):
        quiet = simulate(Scenario(seed, kind, (plan,), forced={}))
        created = ("j0.t0.0", numbers(quiet, "j0.t0.0", "open_writer", "-0-0.csv")[0])
        second = ("j0.driver", numbers(quiet, "j0.driver", "rename_file", ".csv ->")[-1])
        clean(simulate(Scenario(seed, kind, (plan,), events, forced={created: "again", second: death})))


def test_place_for_old_files_that_others_leave_to_a_job_that_is_being_set_up(share: Share) -> None:
    plan = JobPlan("j0", config=CommitterConfig(conflict_mode="replace"), tasks=1, files=1)
    before = {f"{OUT}/_SUCCESS": EARLIER_SUCCESS, f"{OUT}/day=0/old.csv": b"old"}
    for kind in ("adls", "local"):
        for at in share.of(range(30)):
            events = (Event(0, "recover", "j0", False, at * 0.005), Event(1, "cleanup", "j0", False, at * 0.005))
            clean(simulate(Scenario(at, kind, (plan,), events, before=before, forced={})))


@pytest.mark.parametrize("delivery", ["listing", "message"])
def test_old_files_stay_away_where_the_recoverer_that_committed_died_in_its_removal(delivery: Delivery) -> None:
    # Without `_SUCCESS`, only the outcome tells a slow driver that the job, whose decision is gone, was committed.
    replacing = CommitterConfig(conflict_mode="replace", mark_successful_jobs=False)
    plan = JobPlan("j0", delivery=delivery, config=replacing, tasks=1, files=1)
    before = {f"{OUT}/day=0/old.csv": b"old"}
    ending = call_of(Scenario(0, "gcs", (plan,), before=before, forced={}), "j0.driver", "put", "/outcome")
    events = (Event(0, "recover", "j0", True, 0.4),)
    slow = Scenario(0, "gcs", (plan,), events, before=before, forced={ending: "slow"})
    (ended,) = numbers(simulate(slow), "op0", "put", "/outcome")
    for number in range(ended, ended + 12):
        clean(simulate(replace(slow, forced={ending: "slow", ("op0", number): "crash_before"})))


@pytest.mark.parametrize("kind", ["adls", "gcs"])
def test_outcome_that_is_kept_while_a_late_recoverer_looks_again(kind: str, share: Share) -> None:
    plan = JobPlan("j0", config=CommitterConfig(outcome_kept=True), tasks=1, files=1)
    # It lists and reads beside a driver that decides, publishes and keeps the outcome.
    for at in share.of(range(40)):
        events = (Event(0, "roll_back", "j0", True, at * 0.01),)
        for slow in range(1, 8):
            clean(simulate(Scenario(at, kind, (plan,), events, forced={("op0", slow): "slow"})))


@pytest.mark.parametrize("kind", ["adls", "gcs", "local"])
@pytest.mark.parametrize("what", ["abort", "roll_back"])
def test_job_that_is_ended_while_it_is_set_up_is_not_taken_for_hadoops(
    kind: str, what: EventKind, share: Share
) -> None:
    plan = JobPlan("j0", tasks=1, files=1)
    for at in share.of(range(30)):
        # On GCS the setup record has its name already, and the directories for the tasks are a while in coming.
        made = call_of(Scenario(at, kind, (plan,), forced={}), "j0.driver", "make_directory", "/00/tasks")
        for later in (0, 0.06):
            events = (Event(0, what, "j0", False, at * 0.003 + later),)
            clean(simulate(Scenario(at, kind, (plan,), events, forced={made: "slow"})))


def test_operator_who_claims_the_id_that_a_driver_is_about_to_set_up() -> None:
    """He removes an empty directory and decides against it; the driver makes it again, and its job is another one."""
    plan = JobPlan("j0", delivery="message", tasks=1, files=1)
    events = (Event(0, "cleanup", "j0", False, 0.2),)
    for seed in range(8):
        result = simulate(Scenario(seed, "hdfs", (plan,), events, forced={("j0.driver", 3): "slow"}))
        clean(result)
        assert result.fates == {"j0": "committed"}


def test_executor_that_lists_an_upload_after_the_cleanup_read_the_lists() -> None:
    plan = JobPlan("j0", "magic", "message", tasks=1, files=2, patience_s=0.1)
    lists = numbers(simulate(Scenario(0, "s3", (plan,), forced={})), "j0.t0.0", "put", "/uploads/")
    for number in lists:
        events = (Event(0, "abort", "j0", False, 0.5),)
        forced: dict[tuple[str, int], Trouble] = {("j0.t0.0", number): "slow", ("j0.t0.0", number + 3): "crash_after"}
        for seed in range(12):
            clean(simulate(Scenario(seed, "s3", (plan,), events, forced=forced)))


@pytest.mark.parametrize("mutant", [False, True], ids=["one blank more", "the same content"])
def test_old_success_file_whose_delete_arrives_late_when_it_was_put_back(*, mutant: bool) -> None:
    plan = JobPlan("j0", "magic", "message", tasks=1, files=2)
    before = {f"{OUT}/_SUCCESS": EARLIER_SUCCESS}
    quiet = simulate(Scenario(0, "s3", (plan,), before=before, forced={}))
    delete = ("j0.driver", numbers(quiet, "j0.driver", "delete_file_if", "/_SUCCESS")[0])
    broken = 0
    with apply("success-put-back-as-it-was") if mutant else nullcontext():
        for at in range(10):
            for trouble in ("late", "crash_before"):
                events = (Event(0, "roll_back", "j0", True, 0.3 + at * 0.1),)
                died = ("j0.driver", delete[1] + 2)
                forced: dict[tuple[str, int], Trouble] = {delete: trouble, died: "crash_before"}
                broken += bool(simulate(Scenario(at, "s3", (plan,), events, before=before, forced=forced)).violations)
    assert bool(broken) is mutant


@pytest.mark.parametrize("mutant", [False, True], ids=["on condition", "by name"])
def test_success_file_of_a_driver_that_stood_still_while_a_later_job_replaced_its_files(*, mutant: bool) -> None:
    past = JobPlan("j0", delivery="message", tasks=1, files=1)
    replacing = CommitterConfig(conflict_mode="replace")
    later = JobPlan("j1", delivery="message", config=replacing, tasks=1, files=1, starts_s=2.0)
    broken = 0
    with apply("success-written-over") if mutant else nullcontext():
        for at in range(18, 26):
            events = (Event(0, "freeze", "j0", True, at * 0.01, 8.0), Event(1, "recover", "j0", True, 1.0))
            broken += bool(simulate(Scenario(1, "adls", (past, later), events, forced={})).violations)
    assert bool(broken) is mutant


def test_old_files_that_others_wrote_before_a_job_replaces_them_leave_after_its_outcome() -> None:
    plan = JobPlan("j0", "magic", config=CommitterConfig(conflict_mode="replace"), tasks=1, files=2)
    before = {f"{OUT}/day=0/old.csv": b"old"}
    for at in range(12):
        events = (Event(0, "stranger", "j0", False, at * 0.1),)
        clean(simulate(Scenario(at, "s3", (plan,), events, before=before, forced={})))


def test_file_below_the_place_of_an_uploaded_one_whose_deleter_died() -> None:
    replacing = CommitterConfig(conflict_mode="replace", existing_target="replace")
    plan = JobPlan("j0", "magic", "message", config=replacing, tasks=1, files=1)
    before = {f"{OUT}/day=0/part-j0-0-0.csv/inside.csv": b"old"}
    quiet = simulate(Scenario(0, "s3", (plan,), before=before, forced={}))
    clean(quiet)
    deleted = numbers(quiet, "j0.driver", "delete_file_if", "/inside.csv")[0]
    for later in range(8):
        forced: dict[tuple[str, int], Trouble] = {("j0.driver", deleted + later): "crash_after"}
        clean(simulate(Scenario(0, "s3", (plan,), before=before, forced=forced)))


def test_entry_that_arrives_late_beside_a_kept_outcome_in_a_bucket() -> None:
    config = CommitterConfig(conflict_mode="replace", outcome_kept=True)
    plan = JobPlan("j0", "magic", "message", config, tasks=1, files=1)
    for seed in range(6):
        quiet = simulate(Scenario(seed, "s3", (plan,), forced={}))
        entry = numbers(quiet, "j0.driver", "put", "/.committing/")[0]
        clean(simulate(Scenario(seed, "s3", (plan,), forced={("j0.driver", entry): "late"})))
        clean(simulate(Scenario(seed, "s3", (plan,), forced={("j0.driver", entry): "again"})))


@pytest.mark.parametrize("seed", [5000674, 5001048, 5001386, 5001818])
def test_blocks_that_a_job_of_the_same_names_drops_are_a_limit_that_is_known(seed: int) -> None:
    """Where files are made of blocks, a job that is rolled back drops what another one sent to the same names."""
    clean(simulate(draw_scenario(seed, "block-list", workers=True)))


def test_files_that_a_later_job_replaced_are_not_lost_where_a_third_is_unknown() -> None:
    """5100882: the checker looked for what a job had committed and another one, which replaces, took away since."""
    clean(simulate(draw_scenario(5100882, "block-list")))


def test_blocks_that_another_users_file_dropped_are_a_limit_that_is_known() -> None:
    """808: the file itself went, too: the job after it that replaces took it for an old one."""
    clean(simulate(draw_scenario(808, "block-list")))


@pytest.mark.parametrize(("first", "kept"), [(True, set[bytes]()), (False, {b"new"})])
async def test_only_blocks_that_waited_when_another_users_file_came_may_be_lost(first: bool, kept: set[bytes]) -> None:
    world = MemoryWorld("azure-flat")
    store, path = world.store(), world.destination / "a"
    watch = JobWatch("j0", Ledger(1, CommitterConfig()), world)
    attempt = Attempt(0, 0, files={"a": b"new"})
    if first:
        await BLOCK_LISTS.required(store, "put_block", path).put_block(path, "1", b"new")
    world.write(world.name_of("a"), b"another user's")
    world.remove(world.name_of("a"))
    if not first:
        await BLOCK_LISTS.required(store, "put_block", path).put_block(path, "1", b"new")
    assert watch.kept_of(attempt, [watch]) == kept
    world.forget()


@pytest.mark.parametrize("kind", ["adls", "gcs", "s3"])
@pytest.mark.parametrize("anew", [False, True], ids=["the only job of its id", "another job had the id"])
def test_setup_that_an_operator_ended_before_its_driver_heard_that_it_stood(kind: str, *, anew: bool) -> None:
    # The driver sets its job up once more, and that is another job to who ended the first one; on ADLS under one nonce,
    # where it is not yet renamed to its own name.
    plan = JobPlan("k0" if anew else "j0", delivery="message", tasks=1, files=1, under="j0" if anew else "")
    plans = (JobPlan("j0", delivery="message", tasks=1, files=1), plan) if anew else (plan,)
    driver = f"{plan.job_id}.driver"
    quiet = simulate(Scenario(1, kind, plans, forced={})).history()
    put = next(line.split() for line in quiet if f"{driver} " in line and " put " in line and "/setup:" in line)
    forced: dict[tuple[str, int], Trouble] = {(driver, int(put[2])): "lost", (driver, int(put[2]) + 1): "slow"}
    events = (Event(0, "cleanup", plan.job_id, False, float(put[0]) + 0.02),)
    result = simulate(Scenario(1, kind, plans, events, forced=forced))
    clean(result)
    lines = [line for line in result.history() if f"{driver} " in line]
    nonces = {line.partition("~")[2][:20] for line in lines if " put " in line and "/setup" in line}
    assert kind == "adls" or len(nonces) == 2
    assert any(line.endswith(f"says that {plan.job_id} is committed") for line in lines)


@pytest.mark.parametrize("trouble", ["late", "again"])
@pytest.mark.parametrize(("kind", "committer"), [("gcs", "manifest"), ("s3", "magic"), ("azure-flat", "block-list")])
def test_setup_record_that_arrives_when_its_job_was_aborted(kind: str, committer: str, trouble: Trouble) -> None:
    # Its driver stands still before it decides: the record must not make the job live again.
    plan = JobPlan("j0", committer, "message", tasks=1, files=1)
    for seed in range(4):
        put = call_of(Scenario(seed, kind, (plan,), forced={}), "j0.driver", "put", "/setup")
        for at in range(2, 12, 2):
            events = (Event(0, "freeze", "j0", True, at * 0.01, 8.0), Event(1, "abort", "j0", True, at * 0.01 + 0.05))
            result = simulate(Scenario(seed, kind, (plan,), events, forced={put: trouble}))
            clean(result)
            assert not any("j0.driver" in line and "outcome: unknown" in line for line in result.history())


def test_setup_record_that_arrives_beside_a_kept_outcome() -> None:
    plan = JobPlan("j0", config=CommitterConfig(outcome_kept=True), delivery="message", tasks=1, files=1)
    for seed in range(3):
        put = call_of(Scenario(seed, "gcs", (plan,), forced={}), "j0.driver", "put", "/setup")
        clean(simulate(Scenario(seed, "gcs", (plan,), forced={put: "again"})))


def test_job_that_a_cleanup_met_while_it_was_set_up_can_be_taken_back(share: Share) -> None:
    # Where a write makes directories, the setup record must not make a directory that lacks what was there before.
    plan = JobPlan("j0", delivery="message", tasks=1, files=2)
    for slow in range(2, 9):
        for at in share.of(range(3, 12)):
            events = (Event(0, "cleanup", "j0", False, at * 0.01), Event(1, "squatter", "j0", True, 0.1))
            clean(simulate(Scenario(0, "adls", (plan,), events, forced={("j0.driver", slow): "slow"})))
