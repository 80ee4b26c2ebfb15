"""Renames on a service without moves: a copy that replaces nothing, then the delete of exactly what was copied.

The copy stands whole or not at all, and before its source goes. In between, and after a driver that died there, both
names hold the file, as where a rename on a disk is a link and an unlink.
"""

from __future__ import annotations

from typing import Final

import msgspec

from committer.advice import UNREADABLE
from committer.errors import (
    CommitterError,
    StoreOutcomeUnknownError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.paths import StorePath
from committer.stores.gcs.errors import check_heeded, error_of, says_no_bucket, unsupported
from committer.stores.gcs.resources import STAMP, ObjectResource, identity_of, object_at
from committer.stores.gcs.wire import GcsWire
from committer.stores.helpers import unseen
from committer.stores.http import Answer
from committer.undecodable import UNDECODABLE

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
