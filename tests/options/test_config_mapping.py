"""`config={...}`: every public function takes its choices as a mapping too, and says what is wrong with one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig, JobSpec, sync
from committer.errors import ConfigurationError
from committer.options.config import config_of

FUNCTIONS = [
    name
    for name in committer.__all__
    if inspect.isfunction(getattr(committer, name))
    and "config" in inspect.signature(getattr(committer, name)).parameters
]


def test_a_mapping_is_a_config() -> None:
    given = {"existing_target": "replace", "io_concurrency": 8, "io_rate": 30, "absolute_roots": ["/a", "/b"]}
    made = config_of(given)
    assert made == CommitterConfig(existing_target="replace", io_concurrency=8, io_rate=30, absolute_roots=("/a", "/b"))
    assert made is not None
    assert config_of(made) is made
    assert config_of(None) is None
    assert config_of({}) == CommitterConfig()
    assert "argument" in str(made.explain())


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"existing_targets": "replace"}, "did you mean 'existing_target'?"),
        ({"zzz": 1}, "the fields are existing_target, "),
        ({3: 1}, "config has no field 3"),
        ({"mapreduce.manifest.committer.io.threads": 4}, "CommitterConfig.from_hadoop"),
        ({"existing_target": "overwrite"}, "existing_target cannot be 'overwrite': it must be one of fail, replace"),
        ({"io_concurrency": "8"}, "io_concurrency cannot be '8'"),
        ({"absolute_roots": "/a"}, "absolute_roots cannot be '/a'"),
        ([("existing_target", "replace")], "not a list"),
        ("existing_target=replace", "not a str"),
    ],
)
def test_what_is_wrong_is_named(config: object, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config_of(config)  # type: ignore[arg-type]
    assert said in str(caught.value)


def arguments(name: str, dest: Path) -> dict[str, object]:
    """What a function needs beside `config`."""
    return {
        "recover": {"job_id": "j"},
        "settle": {"job_id": "j"},
        "attach_job": {"job_id": "j"},
        "cleanup": {"older_than": 0},
        "abort_uploads": {"force": True},
    }.get(name, {})


@pytest.mark.parametrize("name", FUNCTIONS)
async def test_every_function_refuses_an_unknown_field(name: str, tmp_path: Path) -> None:
    function: Callable[..., Awaitable[object]] = getattr(committer, name)
    with pytest.raises(ConfigurationError, match="config has no field 'nonsense'"):
        await function(tmp_path, config={"nonsense": 1}, **arguments(name, tmp_path))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_so_do_the_blocking_ones(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="config has no field 'nonsense'"):
        getattr(sync, name)(tmp_path, config={"nonsense": 1}, **arguments(name, tmp_path))


async def test_a_job_has_the_choices_of_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_text("old")
    async with committer.open_job(tmp_path, config={"existing_target": "replace"}) as job:
        assert job.spec.config == CommitterConfig(existing_target="replace")
        async with job.task_attempt(task=0) as task, task.open("part-0") as file:
            await file.write(b"new")
    assert (tmp_path / "part-0").read_text() == "new"
    assert JobSpec.for_hadoop(tmp_path, "job_1_1", config={"hadoop_driver": True}).config.hadoop_driver
    await committer.validate(tmp_path, config={"io_concurrency": 2})
    assert (await committer.cleanup(tmp_path, older_than=0, config={"io_concurrency": 2})).removed == []


def test_spark_hands_every_choice_on_as_an_option() -> None:
    from committer.spark.options import parse_options
    from committer.spark.session_settings import config_options

    given = {"existing_target": "replace", "validate_output": True, "absolute_roots": ["/a", "file:///b c"]}
    handed = parse_options({"path": "/t", "format": "csv", **config_options(given)})
    assert handed.config == config_of(given)
    with pytest.raises(ConfigurationError, match="config has no field"):
        config_options({"nonsense": 1})
