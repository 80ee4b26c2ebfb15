"""Coroutine methods whose calls are noted until they are awaited: a forgotten ``await`` must not lose anything."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from itertools import count
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class Calls:
    """Calls that were made and did not begin, first the earliest. The objects of one task attempt share one.

    A call may be made in any thread, while another one looks: what is looked at is a copy, taken in one step.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[object, str]] = {}
        self._numbers = count()

    def add(self, owner: object, call: str) -> int:
        """Notes a call, such as ``write(...)``; returns what `begin` is told."""
        number = next(self._numbers)
        self._made[number] = owner, call
        return number

    def begin(self, number: int) -> None:
        """Takes a call back: it was awaited."""
        self._made.pop(number, None)

    def forget(self, owner: object) -> None:
        """Takes all calls of an object back: they do not matter any more."""
        for number in [number for number, (of, _) in list(self._made.items()) if of is owner]:
            self.begin(number)

    def first(self, owner: object | None = None) -> tuple[object, str] | None:
        """The first call that did not begin, with its object; of one object, or of any."""
        return next((made for made in list(self._made.values()) if owner is None or made[0] is owner), None)

    def of(self, owner: object) -> list[str]:
        """The calls of an object that did not begin."""
        return [call for of, call in list(self._made.values()) if of is owner]


class _Caller(Protocol):
    _calls: Calls


S = TypeVar("S", bound=_Caller)
P = ParamSpec("P")
T = TypeVar("T")


def noted(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Has each call of a coroutine method noted in its object's `_calls` until it begins."""

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
