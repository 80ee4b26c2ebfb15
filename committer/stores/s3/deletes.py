"""Deletes of objects: one where something stands, one on a condition, and a thousand at once, on conditions or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from committer.stores.http_answers import parsed
from committer.stores.s3.errors import code_of, error_of, error_of_code
from committer.stores.s3.listing import object_at, status_in
from committer.stores.s3.wire import S3Wire
from committer.stores.s3.xml import can_be_text, deletion, is_etag, md5_of

BATCH: Final = 1000
"""Names that one call deletes at most ("DeleteObjects")."""

# What services answer that do not know "DeleteObjects".
_NOT_THERE: Final = (405, 501)
# What one answers that does not know a condition in it.
_NOT_KNOWN: Final = "MalformedXML"
_WORKERS: Final = 8

# Addresses of services that were seen not to hear the conditions of a call for many files. Behind one address there may
# be servers of several versions, so this holds for all stores of the process, and as long as it lives.
_ignoring: set[str | None] = set()


class Deletes:
    """Deletes objects of one bucket.

    Args:
        wire: What sends requests.
    """

    def __init__(self, wire: S3Wire) -> None:
        self._wire = wire
        self._one_by_one = False

    @property
    def ignores_conditions(self) -> bool:
        """Whether it was seen that a call for many files does not hear conditions; each object goes by itself then."""
        return self._wire.endpoint in _ignoring

    def saw_condition_ignored(self) -> None:
        """Has no store of this process delete many objects on conditions at this address any more."""
        _ignoring.add(self._wire.endpoint)

    async def delete(self, path: StorePath) -> bool:
        """Deletes an object; see `Store.delete_file`. Two calls."""
        if await object_at(self._wire, "delete_file", path) is None:
            return False
        await self._wire.done("delete_file", "DELETE", path)
        return True

    async def delete_if(self, path: StorePath, identity: str) -> bool:
        """Deletes an object if it is the one that is meant; see `SupportsConditionalDelete.delete_file_if`."""
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

    async def delete_many(self, paths: Sequence[StorePath]) -> dict[StorePath, StoreError]:
        """Deletes objects in one call; see `SupportsBatchDelete.delete_files`.

        A name that XML cannot hold is deleted by a call of its own, and so is every name where the service has no such
        call.
        """
        if len(paths) > BATCH:
            raise _too_many(len(paths))
        return await self._delete_all(dict.fromkeys(paths))

    async def delete_many_if(self, files: Mapping[StorePath, str]) -> dict[StorePath, StoreError]:
        """Deletes those objects that are the ones that are meant; see `SupportsConditionalBatchDelete.delete_files_if`.

        As `delete_many`; what goes by calls of its own is looked at first, as by `delete_if`.
        """
        if len(files) > BATCH:
            raise _too_many(len(files))
        return await self._delete_all(files)

    async def _delete_all(self, etags: Mapping[StorePath, str | None]) -> dict[StorePath, StoreError]:
        together: dict[StorePath, str | None] = {}
        conditional = any(etag is not None for etag in etags.values())
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
        """Deletes objects in one call, whose names and etags XML can hold; None for an etag: whatever is there.

        Raises:
            UnsupportedError: The service has no such call, or knows no conditions in it; nothing was deleted.
        """
        by_key = {path.path[1:]: path for path in etags}
        refused = await self._delete_keys("delete_files", by_key, {path.path[1:]: etag for path, etag in etags.items()})
        return {by_key[key]: error for key, error in refused.items()}

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

    async def _delete_keys(
        self, operation: str, keys: Mapping[str, StorePath], etags: Mapping[str, str | None]
    ) -> dict[str, StoreError]:
        body = deletion(etags)
        headers = {"content-md5": md5_of(body), "content-type": "application/xml"}
        at = next(iter(keys.values()))
        answer = await self._wire.send(operation, "POST", at, (("delete", ""),), headers, data=body, key="")
        conditional = any(etag is not None for etag in etags.values())
        if answer.status in _NOT_THERE or (conditional and code_of(answer) == _NOT_KNOWN):
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
        failed: dict[str, StoreError] = {}
        for refused in answered.each("Error"):
            key, code = refused.text("Key"), refused.text("Code")
            if key not in keys:
                raise unclear
            # Of a name that is not there S3 says nothing; other services may say so.
            if code != "NoSuchKey":
                failed[key] = error_of_code(code, operation, keys[key])
        return failed


def _fits(path: StorePath, etag: str | None) -> bool:
    """Whether a file can be named in a call for many."""
    return can_be_text(path.path) and (etag is None or is_etag(etag))


def _too_many(names: int) -> ConfigurationError:
    return ConfigurationError(f"{names} names: a call takes {BATCH}", operation="delete_files")
