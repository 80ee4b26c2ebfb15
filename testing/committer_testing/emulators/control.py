"""`/_control`: how a test in another process steers and reads the emulator. Needs no authorisation."""

from __future__ import annotations

import json
from collections.abc import Iterable, MutableMapping
from typing import Any

from aiohttp import web

from committer_testing.emulators.faults import Conduct, Counters, LoggedRequest, parse_fault


class Control:
    """Answers the control calls; the docstring of each emulator lists them.

    Args:
        conduct: What they steer.
        holders: What the emulated service's top level is called (`filesystems`, `buckets`).
        held: What is there, by name; deleting all of it empties the service.
    """

    def __init__(self, conduct: Conduct, holders: str, held: MutableMapping[str, Any]) -> None:
        self._conduct = conduct
        self._holders = holders
        self._held = held

    async def handle(self, wire: web.BaseRequest) -> web.Response:
        """Answers one."""
        call = (wire.method, wire.path.removeprefix("/_control/").strip("/"))
        try:
            given = json.loads(await wire.content.read() or b"null") if wire.can_read_body else None
            answer = self._answer(call, given, dict(wire.query))
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        if answer is None:
            return _json({"error": "no such control call"}, 404)
        return _json(answer, 200)

    def _answer(self, asked: tuple[str, str], given: Any, query: dict[str, str]) -> object:
        conduct = self._conduct
        match asked:
            case ("GET", "faults"):
                return [fault.as_json() for fault in conduct.faults]
            case ("POST", "faults"):
                made = [parse_fault(_object(one)) for one in (given if isinstance(given, list) else [given])]
                conduct.faults.extend(made)
                return [fault.as_json() for fault in made]
            case ("DELETE", "faults"):
                conduct.faults.clear()
                return []
            case ("POST", "rate"):
                rate = _object(given).get("rate")
                if isinstance(rate, bool) or not isinstance(rate, int | float) or rate < 0:
                    raise ValueError("rate must be a number of requests a second; 0 is no limit")
                conduct.limit.rate = float(rate)
                return {"rate": conduct.limit.rate}
            case ("GET", "counters"):
                return conduct.counters.as_json()
            case ("DELETE", "counters"):
                conduct.counters = Counters()
                return conduct.counters.as_json()
            case ("GET", "requests"):
                return [entry.as_json() for entry in _selected(conduct.log, query)]
            case ("DELETE", "requests"):
                conduct.log.clear()
                return []
            case ("DELETE", call) if call == self._holders:
                self._held.clear()
                return []
        return None


def _selected(log: Iterable[LoggedRequest], query: dict[str, str]) -> Iterable[LoggedRequest]:
    known = set(LoggedRequest.__slots__)
    wanted = {name: value for name, value in query.items() if name not in {"limit", "path_prefix"}}
    unknown = sorted(wanted.keys() - known)
    if unknown:
        raise ValueError(f"unknown: {', '.join(unknown)}")
    prefix = query.get("path_prefix", "")
    found = [
        entry
        for entry in log
        if entry.path.startswith(prefix) and all(str(getattr(entry, name)) == value for name, value in wanted.items())
    ]
    limit = query.get("limit")
    return found if limit is None else found[-int(limit) :] if int(limit) else []


def _object(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError("a JSON object is needed")  # noqa: TRY004 - told to the caller as a bad request
    return given


def _json(value: object, status: int) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), status=status, content_type="application/json")
