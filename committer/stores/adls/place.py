"""Which account and container a path of Azure Data Lake Storage names."""

from __future__ import annotations

from committer.errors import InvalidPathError


def place_of(scheme: str, authority: str) -> tuple[str, str, str]:
    """The container, the account's name and the host that a URI's authority names.

    Raises:
        InvalidPathError: It names none.
    """
    container, at, host = authority.partition("@")
    if not (container and at and host):
        raise InvalidPathError(
            f"{scheme}://{authority} names no container and account",
            next_step="write abfss://container@account.dfs.core.windows.net/path",
        )
    return container, host.partition(".")[0], host
