"""Progress: what listeners are told, and that they cannot break a commit."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from committer.events import JobEvent, Progress
from committer.flow.workers import run_workers
from committer.testing.virtual_time import VirtualRuntime


def watched(runtime: VirtualRuntime | None = None) -> tuple[Progress, list[JobEvent]]:
    events: list[JobEvent] = []
    return Progress("job", [events.append], runtime or VirtualRuntime(auto_advance=False)), events


def test_a_stage_begins_and_ends() -> None:
    progress, events = watched()
    with progress.stage("load", total=2):
        progress.advance(bytes=10)
        progress.advance(bytes=20)
    assert events[0] == JobEvent("stage_started", "job", "load", total=2)
    assert events[-1] == JobEvent("stage_completed", "job", "load", done=2, total=2, bytes_done=30)


def test_a_stage_that_fails_says_so() -> None:
    progress, events = watched()
    with pytest.raises(ValueError, match="broken"), progress.stage("load"):
        progress.advance(3)
        raise ValueError("broken")
    assert events[-1] == JobEvent("stage_failed", "job", "load", done=3, message="ValueError: broken")


def test_stages_nest() -> None:
    progress, events = watched()
    with progress.stage("outer"):
        progress.advance()
        with progress.stage("inner"):
            progress.advance(5)
        progress.advance()
    done = {event.stage: event.done for event in events if event.kind == "stage_completed"}
    assert done == {"outer": 2, "inner": 5}


async def test_stages_side_by_side_each_count_their_own() -> None:
    progress, events = watched()

    async def stage(name: str, length: int) -> None:
        async def work(item: int) -> None:
            await asyncio.sleep(0)
            progress.advance()

        with progress.stage(name, length):
            await run_workers(range(length), work, workers=3)

    await asyncio.gather(stage("one", 10), stage("two", 23))
    done = {event.stage: event.done for event in events if event.kind == "stage_completed"}
    assert done == {"one": 10, "two": 23}


def test_two_jobs_in_one_context_do_not_mix() -> None:
    first, first_events = watched()
    second, second_events = watched()
    with first.stage("a"), second.stage("b"):
        first.advance(2)
        second.advance(3)
    assert first_events[-1].done == 2
    assert second_events[-1].done == 3


async def test_a_million_files_are_not_a_million_events() -> None:
    runtime = VirtualRuntime(auto_advance=False)
    progress, events = watched(runtime)
    with progress.stage("rename"):
        for _ in range(20):
            for _ in range(1000):
                progress.advance(bytes=2)
            await runtime.advance(0.0625)
    told = [event for event in events if event.kind == "advanced"]
    assert len(told) == 10
    assert told[-1].at_s == 1.125
    assert (events[-1].done, events[-1].bytes_done) == (20_000, 40_000)


def test_the_total_may_become_known_later() -> None:
    progress, events = watched()
    with progress.stage("rename"):
        progress.expect(7)
    assert [event.total for event in events] == [None, 7]


def test_the_last_stage_is_known_after_it_failed() -> None:
    progress, _ = watched()
    assert progress.last_stage == ""
    with pytest.raises(ValueError, match="x"), progress.stage("outer"), progress.stage("inner"):
        raise ValueError("x")
    assert progress.last_stage == "inner"


def test_outside_a_stage() -> None:
    progress, events = watched()
    progress.advance()
    progress.expect(3)
    progress.message("hello")
    assert events == [JobEvent("message", "job", message="hello")]


def test_a_message_names_the_stage() -> None:
    progress, events = watched()
    with progress.stage("rename"):
        progress.message("half way")
    assert events[1] == JobEvent("message", "job", "rename", message="half way")


async def test_a_heartbeat_every_ten_seconds_though_nothing_completes() -> None:
    runtime = VirtualRuntime(auto_advance=False)
    progress, events = watched(runtime)
    tasks, threads = len(asyncio.all_tasks()), threading.active_count()
    async with progress.heartbeat():
        with progress.stage("rename", total=9):
            await runtime.advance(9.9)
            assert [event.kind for event in events] == ["stage_started"]
            await runtime.advance(25.2)
            assert [(event.kind, event.at_s) for event in events[1:]] == [
                ("heartbeat", at) for at in (10.0, 20.0, 30.0)
            ]
            assert events[-1].stage == "rename"
            assert (len(asyncio.all_tasks()), threading.active_count()) == (tasks, threads)
    told = len(events)
    await runtime.advance(100)
    assert len(events) == told


async def test_the_heartbeat_ends_with_its_block_however_that_ends() -> None:
    runtime = VirtualRuntime(auto_advance=False)
    progress, events = watched(runtime)
    with pytest.raises(ValueError, match="x"):
        async with progress.heartbeat(1.0):
            raise ValueError("x")

    async def hang() -> None:
        async with progress.heartbeat(1.0):
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await runtime.advance(2.5)
    assert len(events) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await runtime.advance(50)
    assert len(events) == 2


@pytest.mark.allow_blocking("pytest's own log handler writes to a file")
async def test_a_listener_that_raises_is_logged_once_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    runtime = VirtualRuntime(auto_advance=False)
    calls = 0

    def broken(event: JobEvent) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("the terminal is gone")

    events: list[JobEvent] = []
    progress = Progress("job", [broken, events.append], runtime)
    with caplog.at_level(logging.WARNING):
        async with progress.heartbeat(1.0):
            with progress.stage("load"):
                await runtime.advance(3)
    assert calls == 1
    assert [event.kind for event in events] == ["stage_started", *["heartbeat"] * 3, "stage_completed"]
    assert len(caplog.records) == 1
    assert "job" in caplog.text


def test_a_listener_may_come_later() -> None:
    progress, first = watched()
    second: list[JobEvent] = []
    progress.listen(second.append)
    progress.message("hello")
    assert first == second
    assert len(second) == 1


def test_without_listeners() -> None:
    events: list[JobEvent] = []
    progress = Progress("job", [], VirtualRuntime(auto_advance=False))
    with progress.stage("load"):
        progress.advance(5)
        progress.message("hello")
        progress.listen(events.append)
    assert events == [JobEvent("stage_completed", "job", "load", done=5)]
