"""Register of coroutine calls that were not awaited yet, so that a forgotten ``await`` is reported."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from itertools import count
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


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

    def first(self, owner: object | None = None) -> tuple[object, str] | None:
        """Returns the first call that has not begun, with its object; of `owner`, or of any."""
        return next((made for made in list(self._made.values()) if owner is None or made[0] is owner), None)

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
