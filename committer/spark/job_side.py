"""Job side of Spark's commit protocol, as Java calls it: one operation, JSON in, JSON out.

A PySpark driver is called back in its own process (`committer.spark.configure`). For any other driver the JVM starts

    python -P -m committer.spark.job_side setup|commit|abort

with the interpreter named by ``spark.committer.python``: the request on standard input, the answer on standard
output, the log on standard error. A commit continues to its end even if the JVM dies.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import msgspec

from committer.advice import to_blocking_callers
from committer.committers.results import JobReport
from committer.errors import CommitterError, UnsupportedError
from committer.events import Listener
from committer.flow.portal import wait_for
from committer.logs import job_logger
from committer.options.config import CommitterConfig
from committer.spark.commit_log import log_event
from committer.spark.jvm import building
from committer.spark.protocol_jar import check_spark
from committer.spark.protocol_jobs import EndRequest, PoolOf, RunningWrite, SetupRequest, abort, call_of, commit, set_up

_LOG = job_logger("committer.spark")


@cache
def _own_release() -> str:
    """Returns the running release, unchanged by a later installation over this one."""
    return building.release()


def refuse_other_release(release: str, operation: str = "setup_job") -> None:
    """Refuses a jar that was built from other sources than this package's. Reads files: not for an event loop."""
    own = _own_release()
    if release != own:
        raise UnsupportedError(
            f"the jar of the commit protocol in Spark's JVM is of release {release or 'unknown'}, the package of {own}",
            operation=operation,
            next_step="give spark.jars the jar of the installed package, committer.spark.jar_path(), and start the JVM "
            "anew",
        )


def answered(
    operation: str,
    request: str,
    *,
    config: CommitterConfig | None = None,
    progress: bool | Listener | None = None,
    storage: Mapping[str, object] | None = None,
    committed: Callable[[JobReport], object] | None = None,
    listeners: tuple[Listener, ...] = (),
    pool_of: PoolOf | None = None,
) -> str:
    """Runs one operation (``setup``, ``commit`` or ``abort``) for Java and returns JSON; an error is an answer
    too. Blocks.

    Args:
        config: Options that win over the session's.
        committed: Called with the report of a commit.
        pool_of: Creates a pool of executors, if this process can start Spark jobs.
    """
    call: RunningWrite | None = None

    def setup(asked: SetupRequest) -> dict[str, Any]:
        refuse_other_release(asked.release)
        check_spark(asked.spark, operation="setup_job")
        decided = None if call is None else call.config
        job = partial(set_up, asked, config, storage, decided=decided, executors=pool_of is not None)
        # Tasks compare the release with that of their executor's jar.
        return {**wait_for(job, "open_job"), "release": asked.release}

    def end(asked: EndRequest) -> dict[str, Any]:
        if operation == "abort":
            return {"aborted": wait_for(partial(abort, asked, storage), "abort")}
        refuse_other_release(asked.release, "commit")
        report = wait_for(partial(commit, asked, (log_event, *listeners), progress, storage, pool_of), "commit")
        if call is not None:
            call.report = report
        if committed is not None:
            committed(report)
        return {"committed": report.job_id}

    try:
        with to_blocking_callers():
            kind: type[SetupRequest | EndRequest] = SetupRequest if operation == "setup" else EndRequest
            asked = msgspec.json.decode(request, type=kind)
            call = call_of(asked)
            answer = setup(asked) if isinstance(asked, SetupRequest) else end(asked)
    except Exception as error:
        if not isinstance(error, CommitterError):
            _LOG.exception("%s of a job of Spark's failed", operation)
        elif call is not None and operation != "abort":
            call.error = error
        answer = {"error": _told(error, operation)}
    return msgspec.json.encode(answer).decode()


def _told(error: Exception, operation: str) -> str:
    if isinstance(error, CommitterError):
        return f"{type(error).__name__}: {error}"
    outcome = "unknown" if operation == "commit" else "unchanged"
    return f"{type(error).__name__}: {error}; outcome: {outcome}; next step: look at the log of the Python driver"


def main() -> None:
    """Answers the request on standard input, in UTF-8; redirects other output to standard error."""
    with open(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        answers.write(answered(sys.argv[1], sys.stdin.buffer.read().decode()).encode())


if __name__ == "__main__":
    main()
