"""Guards against misuse of the objects that users hold: in another process, or without ``await``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from itertools import count
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    SupportsIndex,
    TypeVar,
)

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


class Calls:
    """Calls that have not begun, in order, of one task attempt. Threads may add calls while others read a copy."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[object, str]] = {}
        self._numbers = count()

    def add(self, owner: object, call: str) -> int:
        """Registers a call, such as ``write(...)``; returns its number for `begin`."""
        number = next(self._numbers)
        self._made[number] = owner, call
        return number

    def begin(self, number: int) -> None:
        """Removes a call that was awaited."""
        self._made.pop(number, None)

    def forget(self, owner: object) -> None:
        """Removes all calls of an object."""
        for number in [number for number, (of, _) in list(self._made.items()) if of is owner]:
            self.begin(number)

    def first(self) -> tuple[object, str] | None:
        """Returns the first call that has not begun, with its object."""
        return next(iter(list(self._made.values())), None)

    def of(self, owner: object) -> list[str]:
        """Returns the calls of an object that have not begun."""
        return [call for of, call in list(self._made.values()) if of is owner]


class _Caller(Protocol):
    _calls: Calls


S = TypeVar("S", bound=_Caller)
P = ParamSpec("P")
T = TypeVar("T")


def noted(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Decorates a coroutine method so that each call is in its object's `_calls` until it begins."""

    @wraps(method)
    async def begun(number: int, caller: S, *args: P.args, **kwargs: P.kwargs) -> T:
        caller._calls.begin(number)
        return await method(caller, *args, **kwargs)

    name = method.__name__

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        number = self._calls.add(self, f"{name}(...)" if args or kwargs else f"{name}()")
        return begun(number, self, *args, **kwargs)

    return call


class _Managed(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


M = TypeVar("M", bound=_Managed)


class Opening(Generic[M]):
    """A call that opens something: ``await`` it, or enter it with ``async with``.

    It warns of a forgotten ``await`` itself: Python's warning would name this class, which users do not know.
    """

    def __init__(self, make: Callable[[], Awaitable[M]], what: str) -> None:
        self._make = make
        self._what = what
        self._begun = False
        self._made: M | None = None

    def __await__(self) -> Generator[Any, None, M]:
        self._begun = True
        return self._make().__await__()

    async def __aenter__(self) -> M:
        self._begun = True
        self._made = await self._make()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made is not None:
            await self._made.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        state = "opened" if self._begun else "not opened yet: await it, or enter it with `async with`"
        return f"<{self._what}(...): {state}>"

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn(
                f"{self._what}(...) was never awaited, nor entered with `async with`: nothing was opened",
                RuntimeWarning,
                stacklevel=2,
            )

    if not TYPE_CHECKING:  # a type checker must go on refusing what these refuse

        def __enter__(self) -> None:
            self._begun = True
            raise TypeError(f"use `async with {self._what}(...)`; plain `with` goes with committer.sync")

        def __exit__(self, *of: object) -> None: ...

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self._begun = True  # what follows says it better than the warning
            raise AttributeError(
                f"{self._what}(...) was neither awaited nor entered, so it has no {name}: "
                f"use `async with {self._what}(...) as ...`, or `... = await {self._what}(...)`",
                name=name,
                obj=self,
            )
