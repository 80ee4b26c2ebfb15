"""Hadoop's configuration files, user name and names of committers."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from committer.errors import ConfigurationError

# What to use, and the names and Java classes that it replaces.
_REPLACED: Final = {
    "use 'file-v1', or 'file-v2' where algorithm 2 is meant; where no process of Hadoop's takes part, 'manifest' does "
    "the same with fewer calls": (
        "file",
        "fileoutputcommitter",
        "fileoutputcommitterfactory",
        "parquetoutputcommitter",
    ),
    "use 'manifest'": ("manifestcommitter", "manifestcommitterfactory", "azuremanifestcommitterfactory"),
    "use 'magic'": ("magicv2", "magics3guardcommitter", "magics3guardcommitterfactory"),
    "use 'directory' or 'partitioned': it is what they are made of, and a committer for Hadoop's own tests only": (
        "staging",
        "stagingcommitter",
        "stagingcommitterfactory",
        "s3multipartoutputcommitter",
    ),
    "use 'directory'": ("directorystagingcommitter", "directorystagingcommitterfactory", "s3directoryoutputcommitter"),
    "use 'partitioned'": (
        "partitionedstagingcommitter",
        "partitionedstagingcommitterfactory",
        "s3partitionedoutputcommitter",
    ),
    "leave the name out, and the job has the committer that suits its store": (
        "s3acommitterfactory",
        "namedcommitterfactory",
        "bindingpathoutputcommitter",
        "bindingparquetoutputcommitter",
        "pathoutputcommitprotocol",
    ),
    "use 'stocator' on an object store: its tasks write where readers see it, too, and `_SUCCESS` names the files that "
    "count; else leave the name out": ("direct", "directoutputcommitter", "directparquetoutputcommitter"),
    "leave the name out: `oss:` paths have the committer `magic`, as JindoOSS has by default": (
        "jindo",
        "jindoosscommitter",
        "jindoosscommitterfactory",
        "jindoossdirectcommitter",
    ),
    "use 'magic': it completes the same uploads when the job commits, not when tasks do": (
        "emrfs",
        "emroptimizedsparksqlparquetoutputcommitter",
    ),
    "leave the name out: its readers go by markers that no other reader knows": ("dbio", "databricks"),
}
_INSTEAD: Final = {name: advice for advice, names in _REPLACED.items() for name in names}


def instead_of(name: str) -> str | None:
    """Returns what to use instead of a committer's name or Java class; None if it is unknown."""
    return _INSTEAD.get(name.strip().rpartition(".")[2].lower())


def hadoop_user() -> str:
    """Returns ``HADOOP_USER_NAME``, else the process's user, as Hadoop's ``UserGroupInformation`` does."""
    named = os.environ.get("HADOOP_USER_NAME", "").strip()
    if named:
        return named.partition("@")[0].partition("/")[0]
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise ConfigurationError(
            f"the user {os.geteuid()} of this process has no name",
            operation="open_job",
            next_step="set pending_set_user, or the environment variable HADOOP_USER_NAME",
            causes=[error],
        ) from error


def read_properties(file: Path) -> dict[str, str]:
    """Reads the properties of a Hadoop configuration file; empty if the file does not exist."""
    try:
        root = ET.fromstring(file.read_bytes())  # noqa: S314 - the user's own file
    except FileNotFoundError:
        return {}
    except (OSError, ET.ParseError) as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error}", operation="open_store", next_step="correct it, or its permissions"
        ) from error
    found = {}
    for one in root.iter("property"):
        name, value = one.findtext("name"), one.findtext("value")
        if name and value is not None:
            found[name.strip()] = value.strip()
    return found
