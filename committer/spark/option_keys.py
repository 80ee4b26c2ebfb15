"""Option keys that are not this data source's own: Hadoop's, which it takes, and secrets, which it refuses."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Final

from committer.config import CommitterConfig
from committer.documentation import page
from committer.errors import ConfigurationError
from committer.logs import job_logger
from committer.option_values import SPARK_HADOOP
from committer.options import (
    FILE_OUTPUT,
    JOB_ATTEMPT,
    MANIFEST,
    NATIVE,
    OPTIONS,
    OUTPUT_COMMITTER,
    S3A,
    S3A_UUID,
    WRITE_JOB_UUID,
    ConfigurationWarning,
)
from committer.resolved_options import resolve

# Which job it is, Spark and the option job_id say.
_SPELLED: Final = {
    option.key.lower(): option.key for option in OPTIONS if option.key not in {JOB_ATTEMPT, WRITE_JOB_UUID, S3A_UUID}
}
_HADOOP_PREFIXES: Final = (MANIFEST, FILE_OUTPUT, OUTPUT_COMMITTER, S3A, NATIVE)
_log = job_logger("committer.spark")

_NO_LETTERS: Final = re.compile(r"[^a-z0-9]+")
_SECRET: Final = re.compile(
    r"secret|passw(?:or)?d|passphrase|token|credential|signature|connectionstring|(?:access|account|private|shared|api|sas)key"
)


def is_hadoop_key(key: str) -> bool:
    """Whether a key, in lower case, is one of the table in `committer.options`, or looks like one."""
    plain = key.removeprefix(SPARK_HADOOP)
    return plain.startswith(_HADOOP_PREFIXES) or plain in _SPELLED


def spelled_as_hadoop(key: str) -> str:
    """A key in lower case as Hadoop writes it, without Spark's prefix."""
    plain = key.removeprefix(SPARK_HADOOP)
    return _SPELLED.get(plain, plain)


def config_of_hadoop(options: Mapping[str, str]) -> CommitterConfig:
    """The choices that Hadoop's options make.

    Args:
        options: Keys as `is_hadoop_key` takes them, in lower case: Spark folds the keys of options.

    Raises:
        ConfigurationError: A value is not one its option takes, or there is no such option.
    """
    given = {spelled_as_hadoop(key): value for key, value in options.items()}
    found = resolve(given)
    for key in found.unknown:
        said = resolve({key: given[key]}).warnings[0]
        raise ConfigurationError(said, operation="save", next_step=f"the options are at {page('options.md')}")
    for said in found.warnings:
        # The process that reads options is not the user's, where a Python warning would be lost: what is logged there
        # reaches the driver's log.
        _log.warning("%s", said)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigurationWarning)
        return CommitterConfig.from_hadoop(given)


def refuse_secret(key: str) -> None:
    """Refuses an option whose key says that its value is a secret; the value is not looked at.

    Raises:
        ConfigurationError: The key looks like a secret's, in Hadoop's spelling or any other.
    """
    words = _NO_LETTERS.split(key.lower())
    if "sas" not in words and not _SECRET.search("".join(words)):
        return
    raise ConfigurationError(
        f"the option {key} looks like a secret, and Spark shows options in plans and logs",
        operation="save",
        next_step="give storage.<key> as a reference, env:NAME for an environment variable or file:PATH for a file on"
        " every machine, for example storage.account_key=env:ACCOUNT_KEY",
    )
