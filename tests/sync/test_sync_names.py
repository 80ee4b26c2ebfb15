"""committer.sync has the names, signatures and docstrings of committer."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import committer
from committer import sync
from committer.api.task_files import TaskFile
from committer.sync.blocking import without_await


def _public(kind: type) -> dict[str, object]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def _parameters(function: Callable[..., object]) -> list[tuple[str, object, object, object]]:
    return [(p.name, p.kind, p.default, p.annotation) for p in inspect.signature(function).parameters.values()]


FUNCTIONS = [
    name for name in committer.__all__ if not name.startswith("_") and inspect.isfunction(getattr(committer, name))
]


def test_every_public_name_is_there() -> None:
    # An executor's futures block, so what publishes with one is here alone.
    assert set(sync.__all__) == set(committer.__all__) - {"__version__"} | {"ExecutorPool"}
    for name in sync.__all__:
        if name not in {*FUNCTIONS, "Job", "TaskAttempt", "ExecutorPool"}:
            assert getattr(sync, name) is getattr(committer, name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_same_parameters(name: str) -> None:
    blocking = getattr(sync, name)
    assert _parameters(blocking) == _parameters(getattr(committer, name))
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize(
    ("name", "returned"),
    [
        ("recover", "JobReport"),
        ("open_job", "Job"),
        ("open_task", "TaskAttempt"),
        ("committed_files", "Iterator[CommittedFile]"),
    ],
)
def test_functions_return_what_is_awaited(name: str, returned: str) -> None:
    assert inspect.signature(getattr(sync, name)).return_annotation == returned


def test_docstrings_lose_await() -> None:
    written = """Opens: ``async with committer.open_job(dest) as job: await job.commit()``; all tasks are awaited.

    ``async for file in committed_files(report)``; see `committer.Job` and committer='magic'."""
    assert without_await(written) == (
        """Opens: ``with committer.sync.open_job(dest) as job: job.commit()``; all tasks are awaited.

    ``for file in committed_files(report)``; see `committer.Job` and committer='magic'."""
    )


def _documented() -> dict[str, str]:
    of_classes = {
        f"{name}.{member}": value
        for name in ("Job", "TaskAttempt")
        for member, value in _public(getattr(sync, name)).items()
        if callable(value)
    }
    documented = {name: getattr(sync, name) for name in FUNCTIONS} | of_classes
    return {name: inspect.getdoc(value) or "" for name, value in documented.items()}


@pytest.mark.parametrize(("name", "text"), _documented().items(), ids=_documented())
def test_docstrings_show_calls_without_await(name: str, text: str) -> None:
    assert text
    assert not re.search(r"\bawait \w|\basync (with|for)\b|committer\.(?!sync)\w+\(", text)


def test_publish_chunk_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(sync.publish_chunk)) is sync.publish_chunk


@pytest.mark.parametrize("name", ["Job", "TaskAttempt"])
def test_classes_have_the_same_members(name: str) -> None:
    engine, blocking = _public(getattr(committer, name)), _public(getattr(sync, name))
    assert engine.keys() == blocking.keys()
    for member, value in engine.items():
        twin = blocking[member]
        if callable(value):
            assert callable(twin)
            assert not inspect.iscoroutinefunction(twin)
            assert _parameters(twin) == _parameters(value), member
        else:
            assert type(twin) is type(value), member


def test_files_have_the_same_members(tmp_path: Path) -> None:
    with sync.open_job(tmp_path) as job, job.task_attempt(0) as task, task.open("a") as file:
        for member in _public(TaskFile):
            assert hasattr(file, member), member
        assert (file.name, file.tell(), file.closed) == ("a", 0, False)
