"""Store for Google Cloud Storage: `gs:` paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import aiohttp

from committer.errors import (
    InvalidPathError,
    StoreError,
    StoreIsADirectoryError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.options.storage import OptionTable
from committer.paths import StorePath
from committer.stores.abilities import has_conditions
from committer.stores.base import Capabilities, FileStatus, FileWriter
from committer.stores.examination import Finding
from committer.stores.gcs.changes import BATCH, Deletes, Renames
from committer.stores.gcs.errors import error_of
from committer.stores.gcs.examine import examine, probe
from committer.stores.gcs.options import TABLE, GcsOptions, checked_bucket
from committer.stores.gcs.wire import FIELDS, GcsWire, object_at, page_in, status_of
from committer.stores.gcs.writer import GcsWriter, Inserts
from committer.stores.http import MAX_NAME_BYTES, HttpStore
from committer.stores.http_answers import content_in, range_up_to
from committer.stores.object_store import ObjectStore, Page, directory_prefix, odd_status

# "Object names"; "Request rate and access distribution guidelines": at first about 1,000 writes a second.
_CAPABILITIES: Final = Capabilities(
    directories=False,
    atomic_directory_rename=False,
    conditional_rename=True,
    versions=True,
    conditional_delete=True,
    conditional_replace=True,
    batch_delete=True,
    max_batch_delete=BATCH,
    examination=True,
    # A name lacks the path's leading slash.
    max_path_bytes=1 + MAX_NAME_BYTES,
    default_io_rate=1000,
)


class GcsStore(HttpStore, ObjectStore):
    """Store for one bucket, over the JSON API; a rename is one atomic, conditional move of the object.

    - A file's identity is its stamp (metadata ``committer-attempt``) and its checksum: moves keep both. Files of
      other writers have no stamp, and their identity proves only the bytes.
    - A rename with an identity reads the source first, and moves the generation that it saw. A new file needs no
      read: the version in its status is its generation.
    - There are no directories. A name is one if objects lie below it, or if another tool left a placeholder, an
      empty object whose name ends in a slash; placeholders are never listed, and are deleted with the objects
      below.
    - The service verifies the checksum of everything that is written.

    Args:
        scheme: ``gs``.
        authority: The bucket.
        options: The storage options.
        http_session: An aiohttp session to use instead of an own one.
    """

    def __init__(
        self,
        scheme: str,
        authority: str,
        options: GcsOptions | None = None,
        *,
        http_session: aiohttp.ClientSession | None = None,
    ) -> None:
        bucket = checked_bucket(scheme, authority)
        self._options = (options or GcsOptions()).checked()
        place, access = self._options.place(), self._options.access()
        super().__init__(scheme, bucket, f"{place}/{bucket}", access, http_session)
        self._wire = GcsWire(place, bucket, self._options.user_project, access, self._http)
        self._inserts = Inserts(self._wire, self)
        self._renames = Renames(self._wire)
        self._deletes = Deletes(self._wire)

    _schemes = ("gs",)
    storage_options: ClassVar[OptionTable] = TABLE

    @classmethod
    def open_for(cls, path: StorePath, options: Mapping[str, object]) -> GcsStore:
        """Makes the store for `path` from storage options: `GcsOptions`, under any name of `storage_options`."""
        given = dict(options)
        http_session = TABLE.take(given, "http_session")
        return cls(path.scheme, path.authority, GcsOptions.of(given, path.authority), http_session=http_session)

    def __reduce__(self) -> tuple[object, ...]:
        return GcsStore, (self._scheme, self._authority, self._options)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of Google Cloud Storage."""
        return _CAPABILITIES

    async def probe(self, directory: StorePath) -> None:
        """Tries renames and conditions in `directory`; 15 calls.

        Raises:
            UnsupportedError: The service lacks what a commit needs, as most emulators do.
        """
        await probe(self, self._renames, self._checked(directory))

    async def findings(self, directory: StorePath, *, scratch: StorePath | None = None) -> list[Finding]:
        """See `SupportsExamination.findings`."""
        return await examine(self._wire, self._renames, self._checked(directory))

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file."""
        self._check_file("read", self._checked(path))
        headers, url = {"Range": range_up_to(limit)}, self._wire.object_url(path)
        answer = await self._wire.send(
            "read", "GET", path, url, (("alt", "media"),), headers, changes=False, limit=limit
        )
        return content_in(answer, path, limit, error_of)

    async def replace_file(self, path: StorePath, data: bytes, *, seen: FileStatus) -> FileStatus:
        """See `SupportsConditionalReplace.replace_file`; the condition is the generation that was seen."""
        self._check_file("put", self._checked(path))
        if seen.version is None:
            raise StorePreconditionError("nothing tells which file is meant", operation="put", path=path)
        return await self._inserts.put("put", path, data, generation=seen.version)

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        """Moves an object; one call, and one more with `identity` if no `version` proves the object."""
        self._check_file("rename_file", self._checked(source))
        self._check_file("rename_file", self._checked(destination))
        if version is None or replace:
            await self._renames.rename(source, destination, replace=replace, identity=identity)
        else:
            await self._renames.rename_version(source, destination, version, identity)

    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file; one call."""
        return self._checked(path).path != "/" and await self._deletes.delete("delete_file", path)

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """See `SupportsConditionalDelete.delete_file_if`; two calls, a third if the file was changed meanwhile."""
        return self._checked(path).path != "/" and await self._deletes.delete_if(path, identity)

    async def delete_files(self, files: Mapping[StorePath, str | None]) -> Mapping[StorePath, StoreError]:
        """See `SupportsBatchDelete.delete_files`; a server without batches gets a call for each path."""
        if has_conditions(files):
            raise UnsupportedError(
                "a call for many files takes no conditions",
                operation="delete_files",
                next_step="delete them one by one, with delete_file_if",
            )
        return await self._deletes.delete_many(
            "delete_files", [path for path in files if self._checked(path).path != "/"]
        )

    async def _put_small(self, path: StorePath, data: bytes, *, exclusive: bool) -> FileStatus:
        self._check_file("put", path)
        return await self._inserts.put("put", path, data, exclusive=exclusive)

    def _writer(self, path: StorePath) -> FileWriter:
        self._check_file("open_writer", path)
        return GcsWriter(self, self._wire, self._inserts, path)

    async def _page(
        self, operation: str, directory: StorePath, *, delimiter: str, most: int | None, token: str | None
    ) -> Page:
        fields = f"items({FIELDS}),prefixes,nextPageToken"
        query = [("prefix", directory_prefix(directory)), ("fields", fields)]
        if delimiter:
            query.append(("delimiter", delimiter))
        if most is not None:
            query.append(("maxResults", str(most)))
        if token is not None:
            query.append(("pageToken", token))
        answer = await self._wire.done(operation, "GET", directory, self._wire.listing_url, query, changes=False)
        return page_in(answer.body, directory)

    def _odd(self, directory: StorePath, name: str) -> FileStatus | None:
        return odd_status(directory, name, "gcloud storage rm", "gs")

    async def _object_at(self, operation: str, path: StorePath) -> FileStatus | None:
        found = await object_at(self._wire, operation, path)
        return None if found is None else status_of(found, path)

    async def _delete_objects(self, operation: str, paths: Sequence[StorePath]) -> None:
        for first in range(0, len(paths), BATCH):
            failed = await self._deletes.delete_many(operation, paths[first : first + BATCH])
            for error in failed.values():
                raise error

    def _check_file(self, operation: str, path: StorePath) -> None:
        if path.path == "/":
            raise StoreIsADirectoryError("the bucket itself is no file", operation=operation, path=path)

    def _checked(self, path: StorePath) -> StorePath:
        name = super()._checked(path).path
        # "Object names" forbids these.
        if "\r" in name or "\n" in name or name.startswith("/.well-known/acme-challenge/"):
            raise InvalidPathError(
                "the service can hold no such name",
                path=ascii(str(path)),
                next_step="give a name of at most 1,024 bytes of UTF-8 without line breaks",
            )
        return path
