"""Answers ``committer validate``: compares a destination with its `_SUCCESS`."""

from __future__ import annotations

from committer.api.validate import ValidationReport, validate
from committer.cli.output import Answer, Part, line, pairs
from committer.cli.session import Session, named
from committer.cli.text import Exit
from committer.readable import count


async def compare(session: Session, uri: str, limit: int) -> Answer:
    """Compares; exit code 1 if a file is missing, wrong or extra, 6 if not every file could be compared."""
    report = await validate(uri, storage_options=session.storage, config=session.config)
    verdict = "as its _SUCCESS says" if report.ok else "NOT as its _SUCCESS says"
    parts: list[Part] = [line(f"{uri} is {verdict}", "green" if report.ok else "bold red")]
    if not report.complete:
        few = f"compared {report.files:,} of {count(report.committed, 'file')}: _SUCCESS names no more"
        verdict = f"in these, {uri} is {verdict}"
        parts = [line(few, "bold yellow"), line(verdict, "" if report.ok else "bold red")]
    parts.append(
        pairs(
            [
                ("job", report.job_id),
                ("compared", count(report.files, "file")),
                ("complete", "yes" if report.complete else "no"),
                ("list", report.file_list),
                ("remark", report.remark),
            ],
            indent=2,
        )
    )
    for head, names, many in (
        ("missing", report.missing, report.missing_count),
        ("wrong", report.wrong, report.wrong_count),
        ("extra", report.extra, report.extra_count),
    ):
        parts += named(head, names, "bold", limit, count=many)
    return Answer({"destination": uri, "report": report}, parts, _code(report))


def _code(report: ValidationReport) -> Exit:
    if not report.ok:
        return Exit.FAILED
    return Exit.OK if report.complete else Exit.NOT_ALL_COMPARED
