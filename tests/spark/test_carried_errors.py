"""Errors that Spark carries from its Python processes are raised as what they were."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationBusyError,
    JobNotFoundError,
    JobUndecidedError,
    MultipleError,
    OutcomeUnknownError,
    PreflightError,
    RecordError,
    StoreNotFoundError,
    StorePermissionError,
    StoreThrottledError,
    TargetExistsError,
)
from committer.paths import StorePath
from committer.spark.carried_errors import error_behind, to_caller
from committer.spark.datasource import CommitterDataSource
from committer.stages.publish.move_aside import NotGivenBackError

from .test_failures import SCHEMA


def as_spark_tells(error: CommitterError, *, carry: bool = True) -> RuntimeError:
    """What the caller of a write catches, when `error` was raised beside Spark's driver."""
    try:
        with to_caller(carry):
            try:
                raise StoreNotFoundError("an earlier one", path="file:/a")
            except StoreNotFoundError:
                raise error  # noqa: B904 - as where one error is raised while another is handled
    except CommitterError as raised:
        told = traceback.format_exc()
        assert raised is error
    return RuntimeError(f"[PYTHON_DATA_SOURCE_ERROR] Failed: {told} SQLSTATE: 38000\n\nJVM stacktrace:\n\tat java")


def every_class(of: type[CommitterError] = CommitterError) -> Iterator[type[CommitterError]]:
    yield of
    for one in of.__subclasses__():
        if one.__module__ == "committer.errors":
            yield from every_class(one)


@pytest.mark.parametrize("kind", sorted(set(every_class()), key=lambda kind: kind.__name__))
def test_every_class_comes_back(kind: type[CommitterError]) -> None:
    error = kind("it; failed\nbadly: ü", path="file:/a b", operation="save", outcome="partial", next_step="go; look")
    found = error_behind(as_spark_tells(error))
    assert type(found) is kind
    assert str(found) == str(error)
    assert vars(found) == {key: value for key, value in vars(error).items() if key != "__notes__"}


@pytest.mark.parametrize(
    ("error", "attribute"),
    [
        (DestinationBusyError("busy", owners=["b", "c; d"]), "owners"),
        (PreflightError("two files", conflicts=["a: b", "c"]), "conflicts"),
        (TargetExistsError("one file", conflicts=["a"]), "conflicts"),
        (RecordError("odd", field="files[3]"), "field"),
        (JobUndecidedError("open", delivery="message"), "delivery"),
        (StoreThrottledError("slow down", retry_after_s=1.5), "retry_after_s"),
        (StoreThrottledError("slow down"), "retry_after_s"),
        (StoreThrottledError("one name", one_name=True), "one_name"),
    ],
)
def test_what_a_class_holds_besides_comes_back(error: CommitterError, attribute: str) -> None:
    found = error_behind(as_spark_tells(error))
    assert getattr(found, attribute) == getattr(error, attribute)


def test_a_class_of_a_stage_comes_back_as_the_public_one() -> None:
    place, path = StorePath("file", "", "/a/_temporary/J/taken-1"), StorePath("file", "", "/a/_SUCCESS")
    error = NotGivenBackError(place, path, StorePermissionError("refused"))
    found = error_behind(as_spark_tells(error))
    assert type(found) is OutcomeUnknownError
    assert str(found) == str(error)


def test_the_failures_behind_an_error_come_back() -> None:
    error = MultipleError.of(
        "commit_job", [DestinationBusyError("busy", owners=["b"]), OSError("disk"), JobNotFoundError("x")]
    )
    found = error_behind(as_spark_tells(error))
    assert found is not None
    assert [type(cause) for cause in found.causes] == [DestinationBusyError, JobNotFoundError]
    assert [getattr(cause, "owner", None) for cause in found.causes] == ["b", None]


def test_advice_names_blocking_calls() -> None:
    error = JobNotFoundError("gone", next_step="run `await committer.list_jobs('d')`")
    found = error_behind(as_spark_tells(error))
    assert found is not None
    assert found.next_step == "run `committer.sync.list_jobs('d')`"


def test_a_user_of_the_format_reads_no_json() -> None:
    told = as_spark_tells(JobNotFoundError("gone"), carry=False)
    assert "committer-error" not in str(told)
    assert error_behind(told) is None


@pytest.mark.parametrize(
    "text",
    [
        "boom",
        "committer.errors.JobNotFoundError: gone; outcome: unchanged",
        "committer-error: {}",
        "committer-error: {",
        'committer-error: {"kind":"Nothing","message":"x","outcome":"unchanged"}',
        'committer-error: {"kind":"sys","message":"x","outcome":"unchanged"}',
        'committer-error: {"kind":"JobError","message":"x","outcome":"fine"}',
        'committer-error: {"kind":"JobError","message":"x","outcome":"partial","attributes":{"owner":"b"}}',
        'he said committer-error: {"kind":"JobError","message":"x","outcome":"partial"}',
    ],
)
def test_other_texts_carry_none(text: str) -> None:
    assert error_behind(RuntimeError(text)) is None


@pytest.mark.parametrize("asked", ["true", "True"])
def test_the_data_source_carries_what_it_is_asked_to(tmp_path: Path, asked: str) -> None:
    options = {"path": str(tmp_path), "existing": "maybe", "carry_errors": asked}
    with pytest.raises(ConfigurationError) as raised:
        CommitterDataSource(options).writer(SCHEMA, overwrite=False)
    carried = error_behind(RuntimeError("".join(traceback.format_exception(raised.value))))
    assert type(carried) is type(raised.value)
    assert str(carried) == str(raised.value)
