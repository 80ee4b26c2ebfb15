"""Renames of objects: by one atomic move, or by a copy and a delete.

A copy appears whole or not at all, before its source is deleted. In between, and after a driver that died
there, both names hold the file, as on a disk that renames by a link and an unlink.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from committer.advice import UNREADABLE
from committer.errors import (
    CommitterError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.readable import UNDECODABLE
from committer.stores.gcs.errors import check_heeded, error_of, says_no_bucket, unsupported
from committer.stores.gcs.resources import STAMP, ObjectResource, identity_of, object_at
from committer.stores.gcs.wire import GcsWire
from committer.stores.helpers import unseen
from committer.stores.http import Answer

_OPERATION: Final = "rename_file"
_DELETES: Final = 2


class _Rewritten(msgspec.Struct, frozen=True):
    done: bool = False
    token: str = msgspec.field(default="", name="rewriteToken")
    copied: str = msgspec.field(default="0", name="totalBytesRewritten")


_REWRITTEN: Final = msgspec.json.Decoder(_Rewritten)


class Copies:
    """Renames by copy and delete within one bucket."""

    def __init__(self, wire: GcsWire) -> None:
        self._wire = wire

    async def copy(
        self,
        source: StorePath,
        destination: StorePath,
        seen: ObjectResource,
        conditions: list[tuple[str, str]],
        *,
        replace: bool,
    ) -> Answer | None:
        """Copies an object with its metadata, and so its identity; returns None if the copy exists, else the refusal.

        A copy of this object that already exists counts, so that a half-done call can be repeated. After a lost
        response the destination is read. One call, one for each further part that the service asks for, and one
        before it with `replace`, where no condition keeps the copy from being made twice.
        """
        if replace and await self._stands(destination, seen):
            return None
        try:
            answer = await self._rewritten(source, destination, conditions)
        except StoreOutcomeUnknownError as lost:
            if not await self._stands(destination, seen, lost):
                raise
            return None
        if answer.status < 300 or (answer.status == 412 and await self._stands(destination, seen)):
            return None
        if answer.status in (400, 405, 501):
            raise unsupported(
                "knows neither how to move an object (moveTo) nor how to copy it (rewriteTo)", destination
            )
        return answer

    async def delete_source(self, source: StorePath, destination: StorePath, seen: ObjectResource) -> None:
        """Deletes the generation that was copied; another object with its name stays.

        If the service refuses, the copy stays and the same rename can be repeated.
        """
        url, query = self._wire.object_url(source), (("ifGenerationMatch", seen.generation),)
        for tries_left in reversed(range(_DELETES)):
            try:
                answer = await self._wire.send(_OPERATION, "DELETE", source, url, query)
                if answer.status < 300 or answer.status in (404, 412):
                    return
                raise error_of(answer, _OPERATION, source)
            except StoreOutcomeUnknownError as lost:
                try:
                    standing = await object_at(self._wire, _OPERATION, source)
                except CommitterError as hidden:
                    raise unseen(lost, hidden, operation=_OPERATION, path=source) from lost
                if standing is None or standing.generation != seen.generation:
                    return
                if not tries_left:
                    raise
            except (StoreThrottledError, StoreUnavailableError):
                raise
            except CommitterError as error:
                error.outcome = "partial"
                error.next_step = f"the file exists at {destination}, too; {error.next_step or 'make the call again'}"
                raise

    async def prove(self, path: StorePath, unused: StorePath) -> None:
        """Tries the conditions of a copy and a delete on an expendable object and an unused name; two calls."""
        # No object has generation 1: they are counted in microseconds.
        answer = await self._rewritten(path, unused, [("ifSourceGenerationMatch", "1"), ("ifGenerationMatch", "0")])
        check_heeded(answer, "ifSourceGenerationMatch of rewriteTo", _OPERATION, path)
        answer = await self._wire.send(
            _OPERATION, "DELETE", path, self._wire.object_url(path), (("ifGenerationMatch", "1"),)
        )
        check_heeded(answer, "ifGenerationMatch of a delete", _OPERATION, path)

    async def _rewritten(self, source: StorePath, destination: StorePath, conditions: list[tuple[str, str]]) -> Answer:
        """Returns the last response to a copy, which the service may make in parts ("Objects: rewrite")."""
        url = self._wire.rewrite_url(source, destination)
        query = [*conditions, ("fields", "done,rewriteToken,totalBytesRewritten")]
        token, before = "", -1
        while True:
            asked = [*query, ("rewriteToken", token)] if token else query
            answer = await self._wire.send(_OPERATION, "POST", destination, url, asked)
            if answer.status == 410 or (token and answer.status == 404 and not says_no_bucket(answer)):
                raise StoreUnavailableError("the copy must begin anew", operation=_OPERATION, path=destination)
            if answer.status >= 300:
                if answer.status == 408 or (answer.status >= 500 and answer.status != 501):
                    raise error_of(answer, _OPERATION, destination, source=source)
                return answer
            try:
                told = _REWRITTEN.decode(answer.body)
                copied = int(told.copied)
            except (*UNDECODABLE, ValueError):
                raise StoreOutcomeUnknownError(
                    "the answer cannot be read", operation=_OPERATION, path=destination, next_step=UNREADABLE
                ) from None
            if told.done:
                return answer
            if not told.token or copied <= before:
                raise StoreUnavailableError("the copy does not get on", operation=_OPERATION, path=destination)
            token, before = told.token, copied

    async def _stands(
        self, destination: StorePath, seen: ObjectResource, lost: StoreOutcomeUnknownError | None = None
    ) -> bool:
        """Checks for a copy of the very object; without a stamp nothing proves it."""
        try:
            found = await object_at(self._wire, _OPERATION, destination)
        except CommitterError as hidden:
            if lost is None:
                raise
            raise unseen(lost, hidden, operation=_OPERATION, path=destination) from lost
        if found is None or not (seen.metadata or {}).get(STAMP):
            return False
        return (identity_of(found), found.size) == (identity_of(seen), seen.size)


OPERATION: Final = "rename_file"

# "Objects: move". A generation is a 64-bit number.
_NEW: Final = (("ifGenerationMatch", "0"),)
_UNCHANGED: Final = (("ifSourceMetagenerationMatch", "1"),)
_GENERATION: Final = re.compile(r"[1-9][0-9]{0,17}")


class Renames:
    """Renames within one bucket, by `copies` if the service has no moves.

    The first rename finds that out (a server without the call does nothing), and this process remembers it.
    """

    def __init__(self, wire: GcsWire) -> None:
        self._wire = wire
        self._moves: bool | None = None
        self.copies: Copies = Copies(wire)

    @property
    def copied(self) -> bool:
        """True if the service is known to have no moves."""
        return self._moves is False

    async def has_moves(self, directory: StorePath) -> bool:
        """Returns True if the service has moves; if unknown, asks it to move a missing object. One call."""
        if self._moves is None:
            nonce = current_runtime().nonce()
            source, destination = directory / f".no-object-{nonce}-1", directory / f".no-object-{nonce}-2"
            answer = await self._move(source, destination, [*_NEW])
            if not (_says_no_object(answer) or _is_not_known(answer)):
                raise error_of(answer, OPERATION, destination, source=source)
            self._moves = _says_no_object(answer)
        return self._moves

    async def prove(self, path: StorePath, unused: StorePath) -> None:
        """Tries the conditions of a rename on an expendable new object and an unused name; two calls."""
        if self.copied:
            await self.copies.prove(path, unused)
            return
        # No object has generation 1: they are counted in microseconds. A new object's metageneration is 1.
        for name, false in (("ifSourceGenerationMatch", "1"), ("ifSourceMetagenerationMatch", "2")):
            answer = await self._move(path, unused, [*_NEW, (name, false)])
            check_heeded(answer, f"{name} of moveTo", OPERATION, path)

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

        One call, two with `identity`. Without moves three, four with `replace`, and one for each further part of
        a copy.
        """
        seen = None
        proved = identity is not None or version is not None
        if proved or source == destination or self.copied:
            seen = await object_at(self._wire, OPERATION, source)
            if seen is None:
                raise await self._source_is_gone(source, destination, identity)
            if (identity is not None and identity_of(seen) != identity) or (
                identity is None and version not in (None, seen.generation)
            ):
                raise _is_another(source)
            if source == destination and not replace:
                raise StoreExistsError("something exists there", operation=OPERATION, path=destination)
            if source == destination:
                return
        conditions = [] if replace else [*_NEW]
        if seen is not None:
            conditions.append(("ifSourceGenerationMatch", seen.generation))
        if self.copied:
            assert seen is not None  # noqa: S101
            answer = await self.copies.copy(source, destination, seen, conditions, replace=replace)
            if answer is None:
                await self.copies.delete_source(source, destination, seen)
                return
        else:
            answer = await self._move(source, destination, conditions)
            if answer.status < 300:
                self._moves = True
                return
            if await self._knows_no_moves(answer, source):
                self._moves = False
                await self.rename(source, destination, replace=replace, identity=identity, version=version)
                return
        if answer.status == 412:
            raise await self._not_met(source, destination, identity, proved=proved, replace=replace)
        raise await self._refused(answer, source, destination, identity)

    async def rename_version(
        self, source: StorePath, destination: StorePath, version: str, identity: str | None
    ) -> None:
        """Renames an object of a known generation, replacing nothing; see `Store.rename_file`.

        The writer got the generation with the identity, and an object at its first metageneration has its
        original metadata: the conditions of this one request prove, at the moment of the move, what reading the
        source would. A delayed duplicate of the request moves nothing, because a move changes the generation.
        """
        if self.copied or source == destination or _GENERATION.fullmatch(version) is None:
            await self.rename(source, destination, replace=False, identity=identity, version=version)
            return
        answer = await self._move(source, destination, [*_NEW, ("ifSourceGenerationMatch", version), *_UNCHANGED])
        if answer.status < 300:
            self._moves = True
        elif answer.status == 412 or _is_not_known(answer):
            await self.rename(source, destination, replace=False, identity=identity, version=version)
        else:
            raise await self._refused(answer, source, destination, identity)

    async def _refused(
        self, answer: Answer, source: StorePath, destination: StorePath, identity: str | None
    ) -> CommitterError:
        if answer.status == 404 and not says_no_bucket(answer):
            return await self._source_is_gone(source, destination, identity)
        return error_of(answer, OPERATION, destination, source=source)

    async def _move(self, source: StorePath, destination: StorePath, conditions: list[tuple[str, str]]) -> Answer:
        url = self._wire.move_url(source, destination)
        return await self._wire.send(OPERATION, "POST", destination, url, (*conditions, ("fields", "generation")))

    async def _knows_no_moves(self, answer: Answer, source: StorePath) -> bool:
        """Returns True if the service refused the call itself, which it never does after a move has succeeded."""
        if self._moves or not _is_not_known(answer):
            return False
        # Some servers answer 404, as for a missing object.
        return answer.status != 404 or await object_at(self._wire, OPERATION, source) is not None

    async def _source_is_gone(
        self, source: StorePath, destination: StorePath, identity: str | None
    ) -> StoreNotFoundError:
        """Returns the error for a missing source; this request or another one may have done the rename."""
        found = await object_at(self._wire, OPERATION, destination) if identity is not None else None
        if found is not None and identity_of(found) == identity:
            return StoreNotFoundError(
                "the source is gone and the file exists at the destination",
                operation=OPERATION,
                path=source,
                outcome="unknown",
                next_step="look at the destination: it holds the file that was to come there",
            )
        return StoreNotFoundError("nothing is there", operation=OPERATION, path=source)

    async def _not_met(
        self, source: StorePath, destination: StorePath, identity: str | None, *, proved: bool, replace: bool
    ) -> StoreNotFoundError | StoreExistsError | StorePreconditionError:
        """Finds out which condition of a rename failed, from both ends: the service does not say."""
        taken = None if replace else await object_at(self._wire, OPERATION, destination)
        if taken is not None and (identity is None or identity_of(taken) != identity):
            return StoreExistsError("something exists there", operation=OPERATION, path=destination)
        if proved and await object_at(self._wire, OPERATION, source) is None:
            return await self._source_is_gone(source, destination, identity)
        if taken is not None:
            return StoreExistsError("something exists there", operation=OPERATION, path=destination)
        if not proved:
            # The object at the destination is gone again. Nothing was done, and a repeated call may succeed.
            return StoreExistsError("something existed there", operation=OPERATION, path=destination)
        return _is_another(source)


def _is_another(source: StorePath) -> StorePreconditionError:
    return StorePreconditionError("the source is another file", operation=OPERATION, path=source)


def _says_no_object(answer: Answer) -> bool:
    return answer.status == 404 and b"No such object" in answer.body[:4096]


def _is_not_known(answer: Answer) -> bool:
    """Returns True if the refusal may be of the call rather than of what it names."""
    if answer.status in (404, 405, 501):
        return not (_says_no_object(answer) or says_no_bucket(answer))
    said = answer.body[:4096].lower()
    return answer.status == 400 and b"requester pays" not in said and b"object name" not in said
