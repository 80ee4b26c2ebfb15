"""The names of objects that task attempts write where readers see them: each holds the run that wrote it."""

from __future__ import annotations

from committer.file_names import unique_name
from committer.paths import StorePath


def attempt_name(name: str, run: str) -> str:
    """The name of the object of a file: ``a=1/p-0.csv`` -> ``a=1/p-0-attempt_<job>_m_000000_0-<nonce>.csv``.

    Stocator's form with a nonce behind it, so that two runs of one attempt id never share a name.

    Args:
        name: Relative to the destination, or an absolute path.
        run: The name of the directory of one run of a task attempt.
    """
    return unique_name(name, run)


def is_named_by(path: StorePath, run: str) -> bool:
    """Whether an object has a name that only that run gives."""
    return f"-{run}" in path.name
