"""Renames objects: by one atomic move, or by a copy and a delete.

The copy stands whole or not at all, and before its source goes. In between, and after a driver that died there, both
names hold the file, as where a rename on a disk is a link and an unlink.
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
    """Copies objects of one bucket within it, and deletes what was copied.

    Args:
        wire: What sends requests.
    """

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
        """Copies an object with its metadata, so that it keeps its identity; None where the copy stands.

        A copy that stands there already, of this very object, counts: a call that got half way is gone on with. After a
        lost answer the destination is looked at. One call, and one for each further part that the service asks for; one
        before it where the copy may replace what stands there, for no condition keeps it from being made twice.

        Args:
            source: The object.
            destination: The copy.
            seen: What was seen at the source.
            conditions: The preconditions, that the source is what was seen among them.
            replace: Whether none of them is of the destination.

        Raises:
            StoreOutcomeUnknownError: The answer was lost, and the copy is not to be seen.
            UnsupportedError: The service knows no copies either.
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
        """Deletes what was copied; another object that has its name by now stays.

        The request names the generation, so that it can be sent again where it is seen not to have been done.

        Raises:
            StoreOutcomeUnknownError: Answers were lost, and it still stands there.
            StoreError: The service refused. The copy stands; the same rename, made again, goes on from there.
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
                error.next_step = f"the file stands at {destination}, too; {error.next_step or 'make the call again'}"
                raise

    async def prove(self, path: StorePath, unused: StorePath) -> None:
        """Tries that the service heeds the conditions of a copy and a delete; two calls.

        Args:
            path: An object that may be lost.
            unused: A name that nothing has.

        Raises:
            UnsupportedError: It does not.
        """
        # No object has this generation: they are counted in microseconds.
        answer = await self._rewritten(path, unused, [("ifSourceGenerationMatch", "1"), ("ifGenerationMatch", "0")])
        check_heeded(answer, "ifSourceGenerationMatch of rewriteTo", _OPERATION, path)
        answer = await self._wire.send(
            _OPERATION, "DELETE", path, self._wire.object_url(path), (("ifGenerationMatch", "1"),)
        )
        check_heeded(answer, "ifGenerationMatch of a delete", _OPERATION, path)

    async def _rewritten(self, source: StorePath, destination: StorePath, conditions: list[tuple[str, str]]) -> Answer:
        """The last answer of a copy, which the service may make in parts ("Objects: rewrite")."""
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
        """Whether a copy of the very object stands there; one without a stamp proves nothing."""
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

# "Objects: move". A generation is a number of 64 bits.
_NEW: Final = (("ifGenerationMatch", "0"),)
_UNCHANGED: Final = (("ifSourceMetagenerationMatch", "1"),)
_GENERATION: Final = re.compile(r"[1-9][0-9]{0,17}")


class Renames:
    """Renames objects of one bucket.

    Whether the service knows moves is seen by the first one: a server that does not know the call does nothing. From
    then on it is remembered, in this process.

    Args:
        wire: What sends requests.

    Attributes:
        copies: What renames where the service knows no moves.
    """

    def __init__(self, wire: GcsWire) -> None:
        self._wire = wire
        self._moves: bool | None = None
        self.copies: Copies = Copies(wire)

    @property
    def copied(self) -> bool:
        """Whether files are known to be renamed by copies."""
        return self._moves is False

    async def has_moves(self, directory: StorePath) -> bool:
        """Whether the service knows moves; asks it, where that is not known, to move what is not there. One call.

        Raises:
            StoreError: The service refused.
        """
        if self._moves is None:
            nonce = current_runtime().nonce()
            source, destination = directory / f".no-object-{nonce}-1", directory / f".no-object-{nonce}-2"
            answer = await self._move(source, destination, [*_NEW])
            if not (_says_no_object(answer) or _is_not_known(answer)):
                raise error_of(answer, OPERATION, destination, source=source)
            self._moves = _says_no_object(answer)
        return self._moves

    async def prove(self, path: StorePath, unused: StorePath) -> None:
        """Tries that the service heeds the conditions that a rename sets for its source; two calls.

        Args:
            path: An object that was just made, and may be lost.
            unused: A name that nothing has.

        Raises:
            UnsupportedError: It does not.
        """
        if self.copied:
            await self.copies.prove(path, unused)
            return
        # No object has this generation: they are counted in microseconds. A new object's metageneration is 1.
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
        """Renames an object; see `Store.rename_file`.

        One call, and one more where `identity` is given. Without moves three, four where it may replace, and one more
        for each further part of a copy that the service makes in parts.

        Args:
            source: The object.
            destination: Its new name.
            replace: Whether it may replace what stands there.
            identity: What it must be.
            version: The generation that it must have, where no identity is known.
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
                raise StoreExistsError("something stands there", operation=OPERATION, path=destination)
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
        """Renames an object that has a generation, replacing nothing; see `SupportsVersions.rename_version`.

        The writer of the object was told the generation with the identity, and an object that still has its first
        metageneration has the metadata that it was made with. So the conditions of this one request prove what a look
        proves, at the moment of the move. A second arrival of the request moves nothing: a move changes the generation.
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
        """Whether a refusal is of the call itself. Once a move was done, it never is."""
        if self._moves or not _is_not_known(answer):
            return False
        # Some say 404, as of an object that is not there.
        return answer.status != 404 or await object_at(self._wire, OPERATION, source) is not None

    async def _source_is_gone(
        self, source: StorePath, destination: StorePath, identity: str | None
    ) -> StoreNotFoundError:
        """What a rename whose source is missing says: it may be done, by this very request or another one."""
        found = await object_at(self._wire, OPERATION, destination) if identity is not None else None
        if found is not None and identity_of(found) == identity:
            return StoreNotFoundError(
                "the source is gone and the file stands at the destination",
                operation=OPERATION,
                path=source,
                outcome="unknown",
                next_step="look at the destination: it holds the file that was to come there",
            )
        return StoreNotFoundError("nothing is there", operation=OPERATION, path=source)

    async def _not_met(
        self, source: StorePath, destination: StorePath, identity: str | None, *, proved: bool, replace: bool
    ) -> StoreNotFoundError | StoreExistsError | StorePreconditionError:
        """Which condition of a rename failed: the service does not say, so both ends are looked at."""
        taken = None if replace else await object_at(self._wire, OPERATION, destination)
        if taken is not None and (identity is None or identity_of(taken) != identity):
            return StoreExistsError("something stands there", operation=OPERATION, path=destination)
        if proved and await object_at(self._wire, OPERATION, source) is None:
            return await self._source_is_gone(source, destination, identity)
        if taken is not None:
            return StoreExistsError("something stands there", operation=OPERATION, path=destination)
        if not proved:
            # What stood there is gone again: nothing was done, and a caller that asks again may do better.
            return StoreExistsError("something stood there", operation=OPERATION, path=destination)
        return _is_another(source)


def _is_another(source: StorePath) -> StorePreconditionError:
    return StorePreconditionError("the source is another file", operation=OPERATION, path=source)


def _says_no_object(answer: Answer) -> bool:
    return answer.status == 404 and b"No such object" in answer.body[:4096]


def _is_not_known(answer: Answer) -> bool:
    """Whether a refusal may be of the call, and not of what it names."""
    if answer.status in (404, 405, 501):
        return not (_says_no_object(answer) or says_no_bucket(answer))
    said = answer.body[:4096].lower()
    return answer.status == 400 and b"requester pays" not in said and b"object name" not in said
