"""Deletes of objects: single, conditional, or many in one request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from committer.errors import ConfigurationError, StoreError, StoreOutcomeUnknownError, StorePreconditionError
from committer.flow.runtime import current_runtime
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stores.gcs.errors import error_of, says_no_bucket
from committer.stores.gcs.wire import IDEMPOTENCY, GcsWire, identity_of, object_at
from committer.stores.http import Answer

BATCH: Final = 100
"""Most calls in one request ("Sending batch requests")."""

# Concurrent deletes on a server without batches.
_AT_ONCE: Final = 16
_NOT_KNOWN: Final = frozenset({400, 404, 405, 501})
_NUMBER: Final = re.compile(rb"^Content-ID:[ \t]*<?response-<?(\d+)>?", re.IGNORECASE | re.MULTILINE)
_STATUS: Final = re.compile(rb"^HTTP/1\.\d (\d{3})[^\n]*\n", re.MULTILINE)
_BLANK_LINE: Final = re.compile(rb"\r?\n\r?\n")


class Deletes:
    """Delete calls of one bucket."""

    def __init__(self, wire: GcsWire) -> None:
        self._wire = wire
        self._batches = True

    async def delete(self, operation: str, path: StorePath) -> bool:
        """Deletes an object; returns True if it existed. One call."""
        answer = await self._wire.send(operation, "DELETE", path, self._wire.object_url(path))
        if answer.status == 404 and not says_no_bucket(answer):
            return False
        if answer.status >= 300:
            raise error_of(answer, operation, path)
        return True

    async def delete_if(self, path: StorePath, identity: str) -> bool:
        """Deletes the object of an identity, if it is there: reads the path, and deletes that generation.

        Raises:
            StorePreconditionError: Another object is there.
        """
        operation = "delete_file_if"
        seen = await object_at(self._wire, operation, path)
        if seen is None:
            return False
        if identity_of(seen) == identity:
            query = (("ifGenerationMatch", seen.generation),)
            answer = await self._wire.send(operation, "DELETE", path, self._wire.object_url(path), query)
            if answer.status < 300:
                return True
            # Some servers answer 412, too, if nothing is there any more.
            gone = answer.status == 412 and await object_at(self._wire, operation, path) is None
            if gone or (answer.status == 404 and not says_no_bucket(answer)):
                return False
            if answer.status != 412:
                raise error_of(answer, operation, path)
        raise StorePreconditionError("another file is there", operation=operation, path=path)

    async def delete_many(self, operation: str, paths: Sequence[StorePath]) -> Mapping[StorePath, StoreError]:
        """Deletes objects, existing or not, and returns the errors of those not deleted.

        One call; a server without batches gets one for each path, 16 at a time. `StoreOutcomeUnknownError` is
        raised if the response lacks a path.
        """
        if len(paths) > BATCH:
            raise ConfigurationError(f"{len(paths)} names: a call takes {BATCH}", operation=operation)
        if not paths:
            return {}
        if self._batches and len(paths) > 1:
            answer = await self._sent(operation, paths)
            if answer.status < 300:
                return await self._refused(operation, paths, answer)
            if answer.status not in _NOT_KNOWN:
                raise error_of(answer, operation, paths[0])
            self._batches = False
        return await self._one_by_one(operation, paths)

    async def _one_by_one(self, operation: str, paths: Sequence[StorePath]) -> Mapping[StorePath, StoreError]:
        failed: dict[StorePath, StoreError] = {}

        async def delete(path: StorePath) -> None:
            try:
                await self.delete(operation, path)
            except StoreError as error:
                failed[path] = error

        await run_workers(paths, delete, workers=_AT_ONCE, operation=operation)
        return failed

    async def _sent(self, operation: str, paths: Sequence[StorePath]) -> Answer:
        boundary = f"lake-committer-{current_runtime().nonce(16)}"
        parts = [
            f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n"
            f"DELETE {self._wire.target_of(path)} HTTP/1.1\r\n{IDEMPOTENCY}: {self._wire.token()}\r\n\r\n\r\n"
            for number, path in enumerate(paths)
        ]
        body = f"{''.join(parts)}--{boundary}--\r\n".encode()
        headers = {"Content-Type": f"multipart/mixed; boundary={boundary}"}
        return await self._wire.send(operation, "POST", paths[0], self._wire.batch_url, (), headers, data=body)

    async def _refused(
        self, operation: str, paths: Sequence[StorePath], answer: Answer
    ) -> Mapping[StorePath, StoreError]:
        answers = _answers_by_path(operation, paths, answer)
        again = [path for path, found in answers.items() if found.status == 401]
        if again and self._wire.refused():
            # A token can expire between the calls of a batch. A 401 has no effect: those calls may be sent again.
            answer = await self._sent(operation, again)
            if answer.status >= 300:
                raise error_of(answer, operation, again[0])
            answers |= _answers_by_path(operation, again, answer)
        refused: dict[StorePath, StoreError] = {}
        for path, found in answers.items():
            if found.status >= 300 and (found.status != 404 or says_no_bucket(found)):
                error = error_of(found, operation, path)
                if not isinstance(error, StoreError):
                    raise error
                refused[path] = error
        return refused


def _answers_by_path(operation: str, paths: Sequence[StorePath], answer: Answer) -> dict[StorePath, Answer]:
    """Returns the responses in a batch's by path; raises `StoreOutcomeUnknownError` if one is missing."""
    answers = _answers_in(answer)
    for number, path in enumerate(paths):
        if number not in answers:
            raise StoreOutcomeUnknownError("the answer is not whole", operation=operation, path=path)
    return {path: answers[number] for number, path in enumerate(paths)}


def _answers_in(answer: Answer) -> dict[int, Answer]:
    boundary = answer.headers.get("Content-Type", "").partition("boundary=")[2].partition(";")[0].strip().strip('"')
    found: dict[int, Answer] = {}
    for part in answer.body.split(f"--{boundary}".encode()) if boundary else ():
        number, status = _NUMBER.search(part), _STATUS.search(part)
        if number is None or status is None:
            continue
        head, *rest = _BLANK_LINE.split(part[status.end() :], maxsplit=1)
        fields = (line.partition(":") for line in head.decode("utf-8", "replace").splitlines())
        headers = {name.strip().title(): value.strip() for name, _, value in fields}
        found[int(number[1])] = Answer(int(status[1]), headers, rest[0] if rest else b"")
    return found
