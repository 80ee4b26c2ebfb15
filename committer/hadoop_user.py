"""The user that Hadoop takes this process for, where no Kerberos is in use."""

from __future__ import annotations

import os
import pwd

from committer.errors import ConfigurationError


def hadoop_user() -> str:
    """``HADOOP_USER_NAME``, else the name of the process's user, as Hadoop's ``UserGroupInformation`` has it.

    Raises:
        ConfigurationError: Neither is there.
    """
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
