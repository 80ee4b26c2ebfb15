"""What a Hadoop client's configuration directory says that this store has to know itself."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from committer.errors import ConfigurationError
from committer.hadoop_files import read_properties

_FILES: Final = ("core-site.xml", "hdfs-site.xml")
_DEFAULT_UMASK: Final = 0o022


class ClientConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a cluster.

    Attributes:
        directory: Where it was read; empty without any.
        authority: A host with a port, or a nameservice.
        name_nodes: How many NameNodes serve it.
        umask: What is taken off the permissions of what is made: `fs.permissions.umask-mode`.
        socket_timeout_is_set: Whether it says how long DataNodes are waited for: `dfs.client.socket-timeout`.
        digest: Of all that the files and options say.
    """

    directory: str
    authority: str
    name_nodes: int
    umask: int
    socket_timeout_is_set: bool
    digest: str


def read_configuration(
    authority: str, directory: str | None, options: Mapping[str, str] | None = None
) -> ClientConfiguration:
    """Reads the configuration files, if there are any; blocks.

    Args:
        authority: A host with a port, or a nameservice; empty for that of ``fs.defaultFS``.
        directory: Where they are; None looks where Hadoop does: `HADOOP_CONF_DIR`, else `HADOOP_HOME`/etc/hadoop.
        options: Hadoop's keys that win over the files.

    Raises:
        ConfigurationError: The directory is not there, or a file in it cannot be read.
    """
    place = directory if directory is not None else _directory_of_environment()
    if directory is not None and not Path(directory).is_dir():
        raise ConfigurationError(
            f"the option config_directory names no directory: {directory}",
            operation="open_store",
            next_step="give the directory that holds core-site.xml and hdfs-site.xml",
        )
    properties: dict[str, str] = {}
    for name in _FILES if place else ():
        properties.update(read_properties(Path(place, name)))
    properties.update(options or {})
    if not authority:
        authority = properties.get("fs.defaultFS", "").removeprefix("hdfs://").partition("/")[0]
    serving = properties.get(f"dfs.ha.namenodes.{authority}", "")
    return ClientConfiguration(
        directory=place,
        authority=authority,
        name_nodes=max(1, len([one for one in serving.split(",") if one.strip()])),
        umask=_umask_of(properties),
        socket_timeout_is_set="dfs.client.socket-timeout" in properties,
        digest=hashlib.sha256(repr(sorted(properties.items())).encode()).hexdigest(),
    )


def _directory_of_environment() -> str:
    home = os.environ.get("HADOOP_HOME", "")
    return os.environ.get("HADOOP_CONF_DIR") or (str(Path(home, "etc", "hadoop")) if home else "")


def _umask_of(properties: Mapping[str, str]) -> int:
    text = properties.get("fs.permissions.umask-mode", "")
    try:
        umask = int(text, 8) if text else _DEFAULT_UMASK
    except ValueError:
        umask = -1
    if not 0 <= umask <= 0o777:
        raise ConfigurationError(
            f"fs.permissions.umask-mode is {text!r}, which is no mask in octal digits",
            operation="open_store",
            next_step="give octal digits, such as 022",
        )
    return umask
