"""Local time in a Spark session's time zone, as java.time reckons it.

Arrow can shift timestamps too, but up to version 26 it forgets daylight saving time after 2037 and knows no zone
spelled like ``GMT+2``. zoneinfo has the rules; its years 1 to 9999 are widened here to all that a timestamp can hold.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from committer.errors import UnsupportedError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_S: Final = 146_097 * 86_400
"""400 years: the Gregorian calendar repeats after them, weekdays included."""
_FIRST_S: Final = (datetime(2, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_LAST_S: Final = (datetime(9998, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?\Z")


@lru_cache(maxsize=64)
def zone(name: str) -> tzinfo:
    """The time zone that Spark calls `name`: a region, or an offset such as ``+02:00``, ``UTC-5`` or ``Z``.

    Raises:
        UnsupportedError: This machine does not know it.
    """
    if name in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    offset = _OFFSET.match(name)
    if offset:
        sign = -1 if offset[1] == "-" else 1
        hours, minutes, seconds = (int(part or 0) for part in offset.group(2, 3, 4))
        return timezone(sign * timedelta(hours=hours, minutes=minutes, seconds=seconds))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # unknown, malformed, a directory of zones
        raise UnsupportedError(
            f"the session's time zone {name!r} is unknown to this Python, and partition names are spelled in it",
            operation="partition",
            next_step="set spark.sql.session.timeZone to a region such as Europe/Paris; where no region is known,"
            " pip install tzdata",
        ) from error


def local_micros(micros: int, name: str) -> int:
    """Moves microseconds since the epoch to local wall time, on the same count.

    Raises:
        UnsupportedError: The zone is unknown.
    """
    rules, seconds = zone(name), micros // 1_000_000
    # Before year 2 every region is on its local mean time; after 9998 its last rules go on, in 400-year cycles.
    seconds = max(seconds, _FIRST_S)
    if seconds > _LAST_S:
        seconds -= -((_LAST_S - seconds) // _CYCLE_S) * _CYCLE_S
    offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(rules).utcoffset() or timedelta()
    return micros + offset // timedelta(microseconds=1)
