"""The pending uploads of a memory space: plain and synchronous, each call one indivisible step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from committer.errors import StoreConflictError, StorePartsError, StoreUploadNotFoundError
from committer.paths import StorePath
from committer.stores.memory.tree import File, Tree, etag
from committer.stores.uploads import PendingUpload, UploadPart, check_part, check_stamp


class _Upload(msgspec.Struct):
    status: PendingUpload
    stamp: str
    parts: dict[int, bytes]


class Uploads:
    """Uploads by id, with S3's rules.

    Args:
        tree: Where a completed upload becomes a file.
        clock: Gives the time of a creation, in seconds since the epoch.

    Attributes:
        answers_again: Whether an upload that was completed is answered as before when it is completed again, without
            effect; else it is not found. S3 does either, by how long ago it was.
    """

    def __init__(self, tree: Tree, clock: Callable[[], float]) -> None:
        self.answers_again = False
        self._tree = tree
        self._clock = clock
        self._created = 0
        self._pending: dict[str, _Upload] = {}
        self._completed: dict[str, tuple[StorePath, str | None]] = {}

    def __iter__(self) -> Iterator[PendingUpload]:
        """Every pending upload, in the order of creation."""
        return (upload.status for upload in self._pending.values())

    def clear(self) -> None:
        """Drops every upload."""
        self._pending.clear()
        self._completed.clear()

    def create(self, path: StorePath, stamp: str) -> str:
        """Begins an upload."""
        check_stamp(stamp, "create_upload", path)
        self._tree.check_free(path, "create_upload", replace=True)
        self._created += 1
        upload_id = f"upload-{self._created}"
        self._pending[upload_id] = _Upload(PendingUpload(path, upload_id, self._clock(), "memory"), stamp, {})
        return upload_id

    def put_part(self, path: StorePath, upload_id: str, number: int, data: bytes) -> UploadPart:
        """Keeps a part."""
        can = self._tree.capabilities
        check_part(number, len(data), can.max_parts, can.max_part_bytes, "put_part", path)
        upload = self._find(path, upload_id, "put_part")
        upload.parts[number] = data
        return _part(number, data)

    def complete(
        self, path: StorePath, upload_id: str, parts: Sequence[UploadPart], *, exclusive: bool, before: File | None
    ) -> str | None:
        """Makes an upload a file.

        Args:
            path: The path of the upload.
            upload_id: The upload.
            parts: What it is made of.
            exclusive: Whether nothing may stand there.
            before: What stood there when the request arrived: another now means that something came between.
        """
        if self.answers_again and not exclusive and self._completed.get(upload_id, (None, None))[0] == path:
            return self._completed[upload_id][1]
        upload = self._find(path, upload_id, "complete_upload")
        contents = self._contents(upload, parts)
        if exclusive and self._tree.find(path, "complete_upload") is not before:
            del self._pending[upload_id]
            raise StoreConflictError("another change of it was under way", operation="complete_upload", path=path)
        file = self._tree.new_file(b"".join(contents), identity=etag(contents, parted=True), stamp=upload.stamp)
        self._tree.put(path, file, "complete_upload", replace=not exclusive)
        del self._pending[upload_id]
        self._completed[upload_id] = path, file.identity
        return file.identity

    def abort(self, path: StorePath, upload_id: str) -> bool:
        """Drops an upload; False when there is none."""
        try:
            self._find(path, upload_id, "abort_upload")
        except StoreUploadNotFoundError:
            return False
        del self._pending[upload_id]
        return True

    def below(self, directory: StorePath) -> list[PendingUpload]:
        """The uploads below a directory."""
        prefix = f"{directory.path.rstrip('/')}/"
        return [status for status in self if status.path.path.startswith(prefix)]

    def parts(self, path: StorePath, upload_id: str) -> list[UploadPart]:
        """The parts of an upload."""
        return [_part(*part) for part in sorted(self._find(path, upload_id, "list_parts").parts.items())]

    def _find(self, path: StorePath, upload_id: str, operation: str) -> _Upload:
        upload = self._pending.get(upload_id)
        if upload is None or upload.status.path != path:
            raise StoreUploadNotFoundError(
                "no such upload is pending: it was completed or aborted", operation=operation, path=path
            )
        return upload

    def _contents(self, upload: _Upload, parts: Sequence[UploadPart]) -> list[bytes]:
        wrong = next(self._complaints(upload, parts), None)
        if wrong is not None:
            raise StorePartsError(wrong, operation="complete_upload", path=upload.status.path)
        return [upload.parts[part.number] for part in parts]

    def _complaints(self, upload: _Upload, parts: Sequence[UploadPart]) -> Iterator[str]:
        if not parts:
            yield "no parts are named"
        last = 0
        for part in parts:
            data = upload.parts.get(part.number)
            if part.number <= last:
                yield f"part {part.number} comes behind part {last}"
            if data is None or etag([data]) != part.etag:
                yield f"part {part.number} is not there, or has another etag"
            elif part is not parts[-1] and len(data) < self._tree.capabilities.min_part_bytes:
                yield f"part {part.number} is too short"
            last = part.number


def _part(number: int, data: bytes) -> UploadPart:
    return UploadPart(number, etag([data]), len(data))
