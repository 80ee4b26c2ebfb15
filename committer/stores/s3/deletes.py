"""Deletes of objects: single or up to 1,000 in a call, conditional or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.errors import (
    ConfigurationError,
    StoreError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    StoreUnavailableError,
    UnsupportedError,
)
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stores.abilities import has_conditions
from committer.stores.http_answers import parsed
from committer.stores.s3.errors import code_of, error_of, error_of_code
from committer.stores.s3.wire import S3Wire, object_at, status_in
from committer.stores.s3.xml import can_be_text, deletion, is_etag, md5_of

BATCH: Final = 1000
"""Most names in one call ("DeleteObjects")."""

# Statuses of services without "DeleteObjects".
_NOT_THERE: Final = (405, 501)
# Code of a service that does not know its conditions.
_NOT_KNOWN: Final = "MalformedXML"
_WORKERS: Final = 8

# Endpoints seen to ignore the conditions of a call for many files. One endpoint may have servers of several
# versions: this holds for all stores of the process, as long as it lives.
_ignoring: set[str | None] = set()


class Deletes:
    """Delete calls of one bucket."""

    def __init__(self, wire: S3Wire) -> None:
        self._wire = wire
        self._one_by_one = False

    @property
    def ignores_conditions(self) -> bool:
        """True if the endpoint was seen to ignore conditions in a call for many; each object then gets its own call."""
        return self._wire.endpoint in _ignoring

    def saw_condition_ignored(self) -> None:
        """Keeps all stores of this process from conditional deletes of many objects at this endpoint."""
        _ignoring.add(self._wire.endpoint)

    async def delete(self, path: StorePath) -> bool:
        """Deletes an object; see `Store.delete_file`. Two calls."""
        if await object_at(self._wire, "delete_file", path) is None:
            return False
        await self._wire.done("delete_file", "DELETE", path)
        return True

    async def delete_if(self, path: StorePath, identity: str) -> bool:
        """Deletes an object if it has the identity; see `SupportsConditionalDelete.delete_file_if`."""
        operation = "delete_file_if"
        answer = await self._wire.send(operation, "HEAD", path, changes=False)
        if answer.status == 404:
            return False
        if answer.status >= 300:
            raise error_of(answer, operation, path, changes=False)
        if status_in(answer.headers, path).identity == identity:
            answer = await self._wire.send(operation, "DELETE", path, (), {"if-match": f'"{identity}"'})
            if answer.status < 300:
                return True
            gone = answer.status == 412 and await object_at(self._wire, operation, path) is None
            if gone or answer.status == 404:
                return False
            if answer.status != 412:
                raise error_of(answer, operation, path)
        raise StorePreconditionError("another file is there", operation=operation, path=path)

    async def delete_many(self, etags: Mapping[StorePath, str | None]) -> dict[StorePath, StoreError]:
        """Deletes objects in one call; see `SupportsBatchDelete.delete_files`.

        A name that XML cannot hold gets its own call, and so does every name if the service lacks the batch call.
        """
        if len(etags) > BATCH:
            raise ConfigurationError(f"{len(etags)} names: a call takes {BATCH}", operation="delete_files")
        together: dict[StorePath, str | None] = {}
        conditional = has_conditions(etags)
        if not (self._one_by_one or (conditional and self.ignores_conditions)):
            together = {path: etag for path, etag in etags.items() if _fits(path, etag)}
        failed: dict[StorePath, StoreError] = {}
        if together:
            try:
                failed = await self.delete_at_once(together)
            except UnsupportedError:
                together = {}
                if conditional:
                    self.saw_condition_ignored()
                else:
                    self._one_by_one = True
        return failed | await self._delete_each({path: etags[path] for path in etags if path not in together})

    async def delete_at_once(self, etags: Mapping[StorePath, str | None]) -> dict[StorePath, StoreError]:
        """Deletes objects of given etags (None for any) in one call; XML must hold their names and etags.

        Raises:
            UnsupportedError: The service lacks the call or its conditions; nothing was deleted.
        """
        operation = "delete_files"
        by_key = {path.path[1:]: path for path in etags}
        body = deletion({path.path[1:]: etag for path, etag in etags.items()})
        headers = {"content-md5": md5_of(body), "content-type": "application/xml"}
        at = next(iter(etags))
        answer = await self._wire.send(operation, "POST", at, (("delete", ""),), headers, data=body, key="")
        if answer.status in _NOT_THERE or (has_conditions(etags) and code_of(answer) == _NOT_KNOWN):
            raise UnsupportedError(
                "the service deletes one file a call", operation=operation, path=at, next_step="delete them one by one"
            )
        if answer.status >= 300:
            raise error_of(answer, operation, at)
        unclear = StoreOutcomeUnknownError("the answer says not which are deleted", operation=operation, path=at)
        try:
            answered = parsed(answer.body, "DeleteResult", operation, at)
        except StoreUnavailableError:
            raise unclear from None
        failed: dict[StorePath, StoreError] = {}
        for refused in answered.iterfind("Error"):
            path, code = by_key.get(refused.findtext("Key", "")), refused.findtext("Code", "")
            if path is None:
                raise unclear
            # S3 does not report a missing name, other services may.
            if code != "NoSuchKey":
                failed[path] = error_of_code(code, operation, path)
        return failed

    async def _delete_each(self, etags: Mapping[StorePath, str | None]) -> dict[StorePath, StoreError]:
        failed: dict[StorePath, StoreError] = {}

        async def delete(path: StorePath) -> None:
            etag = etags[path]
            try:
                if etag is None:
                    await self._wire.done("delete_files", "DELETE", path)
                else:
                    await self.delete_if(path, etag)
            except StoreError as error:
                failed[path] = error

        await run_workers(etags, delete, workers=_WORKERS, operation="delete_files")
        return failed


def _fits(path: StorePath, etag: str | None) -> bool:
    return can_be_text(path.path) and (etag is None or is_etag(etag))
