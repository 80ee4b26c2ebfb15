"""What the headers of a refusal say about the wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from committer.flow.pacing import LONGEST_PAUSE_S
from committer.flow.store_clock import retry_after_s

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": " 7 "}, 7.0),
        ({"RETRY-AFTER": "0"}, 0.0),
        ({"Retry-After": "0.25"}, 0.25),
        ({"Retry-After": "007"}, 7.0),
        ({"x-ms-retry-after-ms": "250"}, 0.25),
        ({"X-MS-Retry-After-MS": "1500"}, 1.5),
        ({"retry-after-ms": "40"}, 0.04),
        ({"Retry-After": "1", "x-ms-retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "9", "x-ms-retry-after-ms": "250"}, 0.25),
        # What cannot be read does not hide what can.
        ({"Retry-After": "3", "x-ms-retry-after-ms": "soon"}, 3.0),
        ({"Retry-After": "3", "x-ms-retry-after-ms": "-1"}, 3.0),
    ],
)
def test_seconds_and_milliseconds(headers: dict[str, str], seconds: float) -> None:
    assert retry_after_s(headers, NOW) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "Sat, 21 Nov 2026 12:00:30 GMT",  # IMF-fixdate
        "Saturday, 21-Nov-26 12:00:30 GMT",  # RFC 850
        "Sat Nov 21 12:00:30 2026",  # asctime
        "Sat, 21 Nov 2026 13:00:30 +0100",
        "Sat, 21 Nov 2026 12:00:30 -0000",
    ],
)
def test_every_form_of_a_date(text: str) -> None:
    assert retry_after_s({"Retry-After": text}, NOW) == 30.0
    assert retry_after_s({"Retry-After": text}, NOW.astimezone(timezone(timedelta(hours=-7)))) == 30.0


def test_a_date_is_measured_from_the_answers_own() -> None:
    headers = {"Date": "Sat, 21 Nov 2026 12:00:20 GMT", "Retry-After": "Sat, 21 Nov 2026 12:00:30 GMT"}
    for hours_wrong in (-5, 0, 5):
        assert retry_after_s(headers, NOW + timedelta(hours=hours_wrong)) == 10.0
    assert retry_after_s({**headers, "Date": "yesterday"}, NOW) == 30.0


def test_a_date_that_has_passed_asks_for_no_wait() -> None:
    assert retry_after_s({"Retry-After": "Sat, 21 Nov 2026 11:59:59 GMT"}, NOW) == 0.0
    assert retry_after_s({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, NOW) == 0.0


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "9" * 40},
        {"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"},
        {"Retry-After": "301"},
        {"x-ms-retry-after-ms": "99999999999999999999"},
    ],
)
def test_an_absurd_wait_is_bounded(headers: dict[str, str]) -> None:
    assert retry_after_s(headers, NOW) == LONGEST_PAUSE_S


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "soon", "-1", "-0.5", "+1", "1e3", "inf", "nan", "1,5", "1 second", ".5", "0x10", "٣", "²"),
        *("Sat, 99 Nov 2026 12:00:30 GMT", "Sat, 21 Nov 2026 25:61:61 GMT", "2026-11-21T12:00:30Z", "Sat, ", "GMT"),
        "9" * 5000,
    ],
)
@pytest.mark.parametrize("name", ["Retry-After", "x-ms-retry-after-ms", "retry-after-ms"])
def test_what_cannot_be_read_says_nothing(name: str, text: str) -> None:
    assert retry_after_s({name: text}, NOW) is None


def test_milliseconds_are_never_a_date() -> None:
    assert retry_after_s({"x-ms-retry-after-ms": "Sat, 21 Nov 2026 12:00:30 GMT"}, NOW) is None


def test_no_header_says_nothing() -> None:
    assert retry_after_s({}, NOW) is None
    assert retry_after_s({"Content-Length": "7"}, NOW) is None


@given(st.dictionaries(st.sampled_from(["Retry-After", "x-ms-retry-after-ms", "Date"]), st.text()))
def test_whatever_a_server_sends_is_read_or_left(headers: dict[str, str]) -> None:
    seconds = retry_after_s(headers, NOW)
    assert seconds is None or 0 <= seconds <= LONGEST_PAUSE_S


@given(st.integers(0, 1000), st.integers(-100_000, 100_000))
def test_dates_are_read_to_the_second(wait: int, skew: int) -> None:
    sent = NOW + timedelta(seconds=skew)
    headers = {
        "Date": format_datetime(sent, usegmt=True),
        "Retry-After": format_datetime(sent + timedelta(seconds=wait), usegmt=True),
    }
    assert retry_after_s(headers, NOW) == min(wait, LONGEST_PAUSE_S)
