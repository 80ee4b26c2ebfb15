"""Renames and deletes of objects: a rename is one atomic move; deletes are single, conditional, or of many at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from committer.errors import (
    CommitterError,
    ConfigurationError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stores.gcs.errors import check_heeded, error_of, says_no_bucket, unsupported
from committer.stores.gcs.wire import IDEMPOTENCY, GcsWire, identity_of, object_at
from committer.stores.http import Answer

_OPERATION: Final = "rename_file"

# "Objects: move". A generation is a 64-bit number.
_NEW: Final = (("ifGenerationMatch", "0"),)
_UNCHANGED: Final = (("ifSourceMetagenerationMatch", "1"),)
_GENERATION: Final = re.compile(r"[1-9][0-9]{0,17}")


class Renames:
    """Renames within one bucket."""

    def __init__(self, wire: GcsWire) -> None:
        self._wire = wire
        # True after the first move: from then on no refusal means that the service has none.
        self._moved = False

    async def has_moves(self, directory: StorePath) -> bool:
        """Returns True if the service has moves: asks it to move a missing object. One call."""
        nonce = current_runtime().nonce()
        source, destination = directory / f".no-object-{nonce}-1", directory / f".no-object-{nonce}-2"
        answer = await self._move(source, destination, [*_NEW])
        if not (_says_no_object(answer) or _is_not_known(answer)):
            raise error_of(answer, _OPERATION, destination, source=source)
        return _says_no_object(answer)

    async def prove(self, path: StorePath, unused: StorePath) -> None:
        """Tries the conditions of a rename on an expendable new object and an unused name; two calls."""
        # No object has generation 1: they are counted in microseconds. A new object's metageneration is 1.
        for name, false in (("ifSourceGenerationMatch", "1"), ("ifSourceMetagenerationMatch", "2")):
            answer = await self._move(path, unused, [*_NEW, (name, false)])
            check_heeded(answer, f"{name} of moveTo", _OPERATION, path)

    async def rename(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool,
        identity: str | None,
        version: str | None = None,
    ) -> None:
        """Renames an object; see `Store.rename_file`. `version` is the source's generation, for an unknown identity.

        One call; two with `identity` or `version`.
        """
        conditions = [] if replace else [*_NEW]
        proved = identity is not None or version is not None
        if proved or source == destination:
            seen = await object_at(self._wire, _OPERATION, source)
            if seen is None:
                raise await self._source_is_gone(source, destination, identity)
            if (identity is not None and identity_of(seen) != identity) or (
                identity is None and version not in (None, seen.generation)
            ):
                raise _is_another(source)
            if source == destination and not replace:
                raise StoreExistsError("something exists there", operation=_OPERATION, path=destination)
            if source == destination:
                return
            conditions.append(("ifSourceGenerationMatch", seen.generation))
        answer = await self._move(source, destination, conditions)
        if answer.status == 412:
            raise await self._not_met(source, destination, identity, proved=proved, replace=replace)
        if answer.status >= 300:
            raise await self._refused(answer, source, destination, identity)

    async def rename_version(
        self, source: StorePath, destination: StorePath, version: str, identity: str | None
    ) -> None:
        """Renames an object of a known generation, replacing nothing; see `Store.rename_file`.

        The writer got the generation with the identity, and an object at its first metageneration has its
        original metadata: the conditions of this one request prove, at the moment of the move, what reading the
        source would. A delayed duplicate of the request moves nothing, because a move changes the generation.
        """
        if source == destination or _GENERATION.fullmatch(version) is None:
            await self.rename(source, destination, replace=False, identity=identity, version=version)
            return
        answer = await self._move(source, destination, [*_NEW, ("ifSourceGenerationMatch", version), *_UNCHANGED])
        if answer.status == 412:
            await self.rename(source, destination, replace=False, identity=identity, version=version)
        elif answer.status >= 300:
            raise await self._refused(answer, source, destination, identity)

    async def _refused(
        self, answer: Answer, source: StorePath, destination: StorePath, identity: str | None
    ) -> CommitterError:
        if answer.status == 404 and not says_no_bucket(answer):
            return await self._source_is_gone(source, destination, identity)
        if _is_not_known(answer) and not self._moved:
            return no_moves(destination)
        return error_of(answer, _OPERATION, destination, source=source)

    async def _move(self, source: StorePath, destination: StorePath, conditions: list[tuple[str, str]]) -> Answer:
        url = self._wire.move_url(source, destination)
        query = (*conditions, ("fields", "generation"))
        answer = await self._wire.send(_OPERATION, "POST", destination, url, query)
        self._moved = self._moved or answer.status < 300
        return answer

    async def _source_is_gone(
        self, source: StorePath, destination: StorePath, identity: str | None
    ) -> StoreNotFoundError:
        """Returns the error for a missing source; this request or another one may have done the rename."""
        found = await object_at(self._wire, _OPERATION, destination) if identity is not None else None
        if found is not None and identity_of(found) == identity:
            return StoreNotFoundError(
                "the source is gone and the file exists at the destination",
                operation=_OPERATION,
                path=source,
                outcome="unknown",
                next_step="look at the destination: it holds the file that was to come there",
            )
        return StoreNotFoundError("nothing is there", operation=_OPERATION, path=source)

    async def _not_met(
        self, source: StorePath, destination: StorePath, identity: str | None, *, proved: bool, replace: bool
    ) -> StoreNotFoundError | StoreExistsError | StorePreconditionError:
        """Finds out which condition of a rename failed, from both ends: the service does not say."""
        taken = None if replace else await object_at(self._wire, _OPERATION, destination)
        if taken is not None and (identity is None or identity_of(taken) != identity):
            return StoreExistsError("something exists there", operation=_OPERATION, path=destination)
        if proved and await object_at(self._wire, _OPERATION, source) is None:
            return await self._source_is_gone(source, destination, identity)
        if taken is not None:
            return StoreExistsError("something exists there", operation=_OPERATION, path=destination)
        if not proved:
            # The object at the destination is gone again. Nothing was done, and a repeated call may succeed.
            return StoreExistsError("something existed there", operation=_OPERATION, path=destination)
        return _is_another(source)


def _is_another(source: StorePath) -> StorePreconditionError:
    return StorePreconditionError("the source is another file", operation=_OPERATION, path=source)


def no_moves(path: StorePath) -> UnsupportedError:
    """Returns the error of a service that cannot move objects."""
    return unsupported("does not know how to move an object (moveTo)", path)


def _says_no_object(answer: Answer) -> bool:
    return answer.status == 404 and b"No such object" in answer.body[:4096]


def _is_not_known(answer: Answer) -> bool:
    """Returns True if the refusal may be of the call rather than of what it names."""
    if answer.status in (404, 405, 501):
        return not (_says_no_object(answer) or says_no_bucket(answer))
    said = answer.body[:4096].lower()
    return answer.status == 400 and b"requester pays" not in said and b"object name" not in said


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
