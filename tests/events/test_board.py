"""The board: which stage is shown, its rate and the time that is left."""

from __future__ import annotations

from committer.events import JobEvent
from committer.events.display import Board, View
from committer.events.progress import EventKind


def event(kind: EventKind, stage: str, done: int = 0, at_s: float = 0.0, total: int | None = None) -> JobEvent:
    return JobEvent(kind=kind, job_id="job", stage=stage, done=done, total=total, bytes_done=done * 1000, at_s=at_s)


def shown(board: Board) -> View:
    view = board.view()
    assert view is not None
    return view


def test_nothing_runs_nothing_is_shown() -> None:
    board = Board()
    assert board.view() is None
    board(event("stage_started", "job_stage_rename_files"))
    board(event("stage_completed", "job_stage_rename_files"))
    assert board.view() is None


def test_rate_and_time_left() -> None:
    board = Board()
    board(event("stage_started", "job_stage_rename_files", at_s=10))
    board(event("advanced", "job_stage_rename_files", 100, 12, 1_000))
    view = shown(board)
    assert (view.words, view.done, view.total, view.rate, view.left_s) == ("publish files", 100, 1_000, 50.0, 18.0)
    assert view.numbers == "100 of 1,000, 100 kB, 50/s, 18 s left"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    board = Board()
    board(event("stage_started", "job_stage_rename_files"))
    board(event("advanced", "job_stage_rename_files", 10_000, 10, 20_000))
    for second in range(11, 60):
        board(event("advanced", "job_stage_rename_files", 10_000 + (second - 10) * 10, second, 20_000))
    view = shown(board)
    assert 9 < (view.rate or 0) < 11


def test_a_heartbeat_slows_the_rate_of_a_stage_that_stands_still() -> None:
    board = Board()
    board(event("stage_started", "job_stage_rename_files"))
    board(event("advanced", "job_stage_rename_files", 10, 1, 20))
    board(event("heartbeat", "job_stage_rename_files", 10, 10, 20))
    assert shown(board).rate == 1.0


def test_the_stage_inside_is_shown_and_then_the_outer_one() -> None:
    board = Board()
    board(event("stage_started", "outer"))
    board(event("stage_started", "job_stage_inner_part"))
    assert shown(board).words == "inner part"
    board(event("stage_failed", "job_stage_inner_part"))
    assert shown(board).words == "outer"


def test_without_total_there_is_no_time_left() -> None:
    board = Board()
    board(event("stage_started", "job_stage_load_manifests"))
    board(event("advanced", "job_stage_load_manifests", 5, 1))
    view = shown(board)
    assert (view.left_s, view.numbers) == (None, "5, 5.00 kB, 5.0/s")


def test_committed_tasks_are_shown_where_no_stage_runs() -> None:
    board = Board()
    board(event("tasks_committed", "", 1_000, 5))
    view = shown(board)
    assert (view.words, view.done, view.rate) == ("tasks committed", 1_000, None)
    board(event("tasks_committed", "", 1_010, 10))
    assert shown(board).rate == 2.0
    board(event("stage_started", "job_stage_load_manifests", at_s=11))
    assert shown(board).words == "load records"
