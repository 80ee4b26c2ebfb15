"""Decoding of malformed dates, XML and error reasons of services."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from committer.errors import StoreError, StoreUnavailableError
from committer.paths import StorePath
from committer.stores.http_answers import Refusal, iso_moment_of, moment_of, parsed

PATH = StorePath("s3", "bucket", "/d")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "9999-12-31T23:59:59+00:00",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Fri, 31 Dec 99999 23:59:59 GMT",
        "Thu, 01 Jan 1970 00:00:00 -9999999999",
    ],
)
def test_a_date_that_no_calendar_holds_is_none(text: str) -> None:
    assert (moment_of(text), iso_moment_of(text)) == (None, None)


def test_a_date_is_one_in_every_zone() -> None:
    expected = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    assert moment_of("Fri, 02 Jan 2026 03:04:05 GMT") == expected
    assert iso_moment_of("2026-01-02T05:04:05+02:00") == expected
    # Without a zone it is of UTC, whatever this machine's is.
    assert moment_of("Fri, 02 Jan 2026 03:04:05 -0000") == iso_moment_of("2026-01-02T03:04:05") == expected


@pytest.mark.parametrize(
    "body",
    [
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE r [<!ENTITY a "x">]><r><a>&a;</a></r>'.encode("utf-16"),
        '<!DOCTYPE r [<!ENTITY a "x">]><r><a>&a;</a></r>'.encode("utf-16-be"),
        b'<!DOCTYPE r [<!ENTITY a "x">]><r><a>&a;</a></r>',
        b"<r><a>",
        b"<r><a>\xff</a></r>",
        b"",
    ],
)
def test_xml_that_is_none_or_declares_anything_is_refused(body: bytes) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be read"):
        parsed(body, "r", "list", PATH)


@pytest.mark.parametrize("encoding", ["x-none", "shift_jis", "UTF-8"])
def test_xml_is_utf_8_whatever_it_says(encoding: str) -> None:
    body = f'\ufeff<?xml version="1.0" encoding="{encoding}"?><r><a>é</a></r>'.encode()
    assert parsed(body, "r", "list", PATH).findtext("a") == "é"


def test_a_reason_moves_no_cursor() -> None:
    error = Refusal(403, "\x1b[2J\x9b31m\u202e", "id\r\n", "read", PATH).as_error(StoreError, "refused")
    assert error.message == r"refused (403 \x1b[2J\x9b31m\u202e id\r\n)"
