"""Things that can be opened with `await` or with `async with`."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar


class _Managed(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


T = TypeVar("T", bound=_Managed)


class Opening(Generic[T]):
    """Something about to be opened: ``await`` it for the thing itself, or enter it with ``async with``.

    Python's own words about a forgotten ``await`` or ``async`` would name this class, of which a user knows nothing.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], what: str) -> None:
        """`what` is the call that gave this, such as ``open_job``."""
        self._make = make
        self._what = what
        self._begun = False
        self._made: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        self._begun = True
        return self._make().__await__()

    async def __aenter__(self) -> T:
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

    def drop(self) -> None:
        """Says that this is left alone on purpose."""
        self._begun = True

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
