"""What belongs to the process that opened it: another one can neither use it nor be given a copy."""

from __future__ import annotations

import os
from typing import ClassVar, NoReturn, SupportsIndex

from committer.errors import CommitterError


class OneProcess:
    """Base of what knows by itself what was done with it: what another process did, this one would never learn of.

    A file that a forked child, or a worker of a pool, wrote through a task attempt of its parent would lie in the
    attempt's directory, and be no part of it. So a child that inherits the object is refused, and pickling and copying
    are refused everywhere.
    """

    _refused: ClassVar[type[CommitterError]]
    """The error that another process gets."""

    _instead: ClassVar[str]
    """What another process does instead; completes ``next step:``."""

    _forks: ClassVar[int] = 0
    """How often this process, and those it descends from, were forked: os.getpid() would be a system call a write."""

    def __init__(self) -> None:
        super().__init__()
        self._opened_after = OneProcess._forks

    def _told_as(self) -> str:
        """What errors call it, such as ``task 3 attempt 0``."""
        raise NotImplementedError

    @property
    def _is_inherited(self) -> bool:
        """Whether this process is a forked child of the one that opened it: leaving a block there does nothing."""
        return self._opened_after != OneProcess._forks

    def _check_process(self, operation: str = "") -> None:
        """Refuses to be used in a forked child.

        Raises:
            CommitterError: This process was forked since; nothing was changed.
        """
        if self._opened_after != OneProcess._forks:
            raise self._refused(
                f"{self._told_as()} was opened before this process was forked, and belongs to its parent",
                operation=operation,
                next_step=self._instead,
            )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        # Pickling ends here, and so do copy.copy and copy.deepcopy.
        raise self._refused(
            f"{self._told_as()} cannot be pickled or copied: it belongs to the process that opened it, which would not "
            "know what is done with a copy",
            operation="pickle",
            next_step=self._instead,
        )


def _forked() -> None:
    OneProcess._forks += 1


os.register_at_fork(after_in_child=_forked)
