"""Base of objects that only the process that created them can use."""

from __future__ import annotations

import os
from typing import ClassVar, NoReturn, SupportsIndex

from committer.errors import CommitterError


class OneProcess:
    """Base of objects that track what was done with them, which they could not for another process.

    A file that a forked child or a pool's worker wrote through its parent's task attempt would be in the attempt's
    directory, but not part of it. So use in a forked child, pickling and copying are refused.
    """

    _refused: ClassVar[type[CommitterError]]
    """The error for another process."""

    _instead: ClassVar[str]
    """Advice for another process; completes ``next step:``."""

    _forks: ClassVar[int] = 0
    """Number of forks of this process and its ancestors; os.getpid() would be a system call per write."""

    def __init__(self) -> None:
        super().__init__()
        self._opened_after = OneProcess._forks

    def _told_as(self) -> str:
        """Returns the object's name in errors, such as ``task 3 attempt 0``."""
        raise NotImplementedError

    @property
    def _is_inherited(self) -> bool:
        """Whether this process is a forked child of the creator; then leaving a block does nothing."""
        return self._opened_after != OneProcess._forks

    def _check_process(self, operation: str = "") -> None:
        """Refuses use in a forked child, without effect."""
        if self._opened_after != OneProcess._forks:
            raise self._refused(
                f"{self._told_as()} was opened before this process was forked, and belongs to its parent",
                operation=operation,
                next_step=self._instead,
            )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        # Pickling, copy.copy and copy.deepcopy all end here.
        raise self._refused(
            f"{self._told_as()} cannot be pickled or copied: it belongs to the process that opened it, which would not "
            "know what is done with a copy",
            operation="pickle",
            next_step=self._instead,
        )


def _forked() -> None:
    OneProcess._forks += 1


os.register_at_fork(after_in_child=_forked)
