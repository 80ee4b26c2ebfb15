"""Answers ``committer uploads``: lists, counts and aborts uploads that were never completed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from committer.api import uploads as engine
from committer.api.uploads import UploadInfo
from committer.cli.output import Answer, Part, copyable, line, table
from committer.cli.session import Session, named
from committer.cli.text import Exit, age, command, usage_error
from committer.paths import StorePath
from committer.readable import count, seconds, size


async def list_(session: Session, uri: str, *, older_than: timedelta | None, sizes: bool, limit: int) -> Answer:
    """Answers ``committer uploads list``."""
    found = await _find(session, uri, older_than, sizes=sizes)
    total = sum(upload.size or 0 for upload in found)
    data: dict[str, object] = {"uploads": _rows(found), "count": len(found)}
    words = f"{count(len(found), 'pending upload')} below {uri}{_older(older_than)}"
    if sizes:
        data["size"] = total
        words += f", {size(total)}"
    return Answer(data, [line(words, "bold"), *_table(uri, found, sizes, limit)])


async def expect(session: Session, uri: str, number: int, *, older_than: timedelta | None, limit: int) -> Answer:
    """Answers ``committer uploads expect``; exit code 1 if there are more or fewer."""
    found = await _find(session, uri, older_than)
    as_expected = len(found) == number
    words = f"{count(len(found), 'pending upload')} below {uri}{_older(older_than)}, {number:,} expected"
    data = {"ok": as_expected, "expected": number, "count": len(found), "uploads": _rows(found)}
    parts = [line(words, "" if as_expected else "bold red")]
    return Answer(
        data,
        parts if as_expected else [*parts, *_table(uri, found, False, limit)],
        Exit.OK if as_expected else Exit.FAILED,
    )


async def plan_abort(
    session: Session, uri: str, *, older_than: timedelta | None, everything: bool
) -> tuple[Answer, list[UploadInfo]]:
    """Plans ``committer uploads abort`` and returns its uploads; takes exactly one of an age and everything."""
    if (older_than is None) != everything:
        raise usage_error(
            "uploads abort takes one of --older-than and --all: the uploads of running jobs are among them",
            "give --older-than, with an age that no running job has; or --all where no job runs",
        )
    found = await _find(session, uri, older_than)
    parts = [line(f"uploads below {uri}", "bold")]
    parts += _lines("will be aborted, with what was sent of them", uri, found) or [
        line("nothing will be aborted", indent=2)
    ]
    return Answer({"done": False, "aborts": _rows(found)}, parts), found


async def run_abort(session: Session, uri: str, planned: Sequence[UploadInfo]) -> Answer:
    """Runs ``committer uploads abort`` after confirmation; exit code 1 if some uploads remain."""
    # Only the shown ones: a job may have begun others during the question.
    report = await engine.abort_these(uri, planned, **session.reach)
    parts = [line(f"{count(len(report.aborted), 'upload')} aborted, {len(report.failed):,} still there")]
    parts += _lines("gone before, completed or aborted by others", uri, report.gone)
    parts += named("still there", [f"{upload_id}: {reason}" for upload_id, reason in report.failed.items()])
    data = {
        "done": not report.failed,
        "aborted": _rows(report.aborted),
        "gone": _rows(report.gone),
        "failed": report.failed,
    }
    return Answer(data, parts, Exit.FAILED if report.failed else Exit.OK)


def interrupted(uri: str) -> Answer:
    """Returns the answer after Ctrl-C; no upload is half aborted."""
    follow_up = command("uploads", "list", uri)
    parts = [line("interrupted: some uploads may be aborted, none by half", "bold red"), copyable(follow_up)]
    return Answer({"done": False, "interrupted": "uploads abort", "next_step": follow_up}, parts, Exit.FAILED)


async def _find(session: Session, uri: str, older_than: timedelta | None, *, sizes: bool = False) -> list[UploadInfo]:
    return await engine.list_uploads(uri, older_than=older_than, sizes=sizes, **session.reach)


def _rows(found: Sequence[UploadInfo]) -> list[dict[str, object]]:
    return [upload.to_dict() for upload in found]


def _older(older_than: timedelta | None) -> str:
    return "" if older_than is None else f" older than {seconds(older_than.total_seconds())}"


def _table(uri: str, found: Sequence[UploadInfo], sizes: bool, limit: int) -> list[Part]:
    if not found:
        return []
    now = datetime.now(UTC)
    heads = ["name", "age", "initiator", *(["parts", "size"] if sizes else []), "upload id"]
    rows = [
        [
            _name(uri, upload),
            age(upload.initiated, now),
            upload.initiator or "",
            *([f"{upload.parts:,}", size(upload.size or 0)] if sizes else []),
            upload.upload_id,
        ]
        for upload in found[:limit]
    ]
    parts: list[Part] = [table(heads, rows, right=(3, 4) if sizes else ())]
    if len(found) > limit:
        parts.append(line(f"and {len(found) - limit:,} more: --limit shows them"))
    return parts


def _lines(head: str, uri: str, found: Sequence[UploadInfo]) -> list[Part]:
    now = datetime.now(UTC)
    return named(head, [f"{_name(uri, upload)} ({age(upload.initiated, now)} old)" for upload in found])


def _name(uri: str, upload: UploadInfo) -> str:
    return upload.path.relative_to(StorePath.of(uri))
