"""``committer validate``: a destination against its `_SUCCESS`."""

from __future__ import annotations

from committer.cli.exits import Exit
from committer.cli.output import Answer, Part, line, pairs
from committer.cli.session import Session, named
from committer.cli.text import count
from committer.validation import validate


async def compare(session: Session, uri: str, limit: int) -> Answer:
    """Compares; exit code 1 when something is missing, wrong or extra.

    Raises:
        JobNotFoundError: There is no `_SUCCESS`.
        RecordError: It cannot be read.
    """
    report = await validate(uri, storage_options=session.storage, config=session.config)
    verdict = "as its _SUCCESS says" if report.ok else "NOT as its _SUCCESS says"
    parts: list[Part] = [
        line(f"{uri} is {verdict}", "green" if report.ok else "bold red"),
        pairs(
            [
                ("job", report.job_id),
                ("compared", count(report.files, "file")),
                ("complete", "yes" if report.complete else "no: _SUCCESS names at most 100 files"),
            ],
            indent=2,
        ),
    ]
    for head, names in (("missing", report.missing), ("wrong", report.wrong), ("extra", report.extra)):
        parts += named(head, names, "bold", limit)
    return Answer({"destination": uri, "report": report}, parts, Exit.OK if report.ok else Exit.FAILED)
