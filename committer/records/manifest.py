# ruff: noqa: E741, N815 - field names are Hadoop's
"""Task manifests in Hadoop's format.

Decoding refuses what Java refuses, and: absent ``type`` or ``version``, null lists and numbers, text after the
record, one destination in two spellings, a size over 64 bits, an unescaped ``?`` or ``#`` in a URI. Accepted as in
Java: unknown members, absent lists (empty), an absent size (0), absent or null statistics, any status and depth of
a directory, a byte order mark, duplicate members.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from committer.errors import InvalidPathError, RecordError
from committer.file_names import check_absolute_name, check_file_name, may_be_reserved
from committer.layout import TEMPORARY
from committer.paths import URI_PLAIN, StorePath, decode_uri_path
from committer.records.hadoop_json import bad_record, decode, encode, members_of
from committer.records.pending_uploads import UploadEntry
from committer.records.statistics import IOStatistics, LazyStatistics, statistics_of

_PLAIN_LINES: Final = URI_PLAIN + b"\n"
_AFTER_SLASH: Final = bytes.maketrans(b".\n", b"//")


def read_uris(uris: Sequence[str], *, field: str, what: str, source: str) -> list[str]:
    """Converts URIs to canonical texts, which are equal exactly if the URIs mean one path:
    ``str(StorePath.from_uri(uri))``.

    `field` is their place in the record, with ``%d`` for the index. About 1 microsecond each. Raises RecordError for a
    malformed URI or an unescaped ``?`` or ``#``: Java drops the rest, so a file would be published under a wrong name.
    """
    texts: list[str] = []
    known: dict[str, str] = {}
    for index, uri in enumerate(uris):
        try:
            texts.append(_read_one(uri, known))
        except InvalidPathError as error:
            raise bad_record(what, field % index, f"{error.message}: {uri!a}", source=source) from error
    return texts


def plain_names_below(base: StorePath, uris: Sequence[str]) -> list[str] | None:
    """Returns the names below `base` if one check proves that every URI is spelled as `StorePath.uri` spells it.

    Nearly all records are written so: about 0.2 microseconds each. None if a URI may need decoding or normalizing,
    or lies elsewhere; then use `read_uris`.
    """
    try:
        prefix = base.uri if base.path == "/" else f"{base.uri}/"
    except InvalidPathError:
        return None
    cut = len(prefix)
    names = [uri[cut:] for uri in uris if uri.startswith(prefix)]
    if len(names) != len(uris):
        return None
    if not names:
        return names
    lines = "\n".join(("", *names, ""))
    if not lines.isascii():
        return None
    data = lines.encode()
    if (
        data.translate(None, _PLAIN_LINES)
        or data.count(b"\n") != len(names) + 1
        # Empty or relative segments have a slash, or an end, beside another slash or a period. So do names with
        # a period at a segment's end, or two in a row, which are harmless but rare.
        or b"//" in data.translate(_AFTER_SLASH)
    ):
        return None
    return names


def _read_one(uri: str, known: dict[str, str]) -> str:
    if "?" in uri or "#" in uri:
        raise InvalidPathError("a URI has an unescaped question mark or hash")
    directory, _, name = uri.rpartition("/")
    # Many entries share a directory, so it is read once. A slash at its end may begin an authority.
    if directory and not directory.endswith("/") and name not in ("", ".", ".."):
        decoded = decode_uri_path(name)
        if decoded not in (".", "..") and "/" not in decoded and "\0" not in decoded:
            text = known.get(directory)
            if text is None:
                text = known[directory] = str(StorePath.from_uri(f"{directory}/")).removesuffix("/")
            return f"{text}/{decoded}"
    return str(StorePath.from_uri(uri))


MANIFEST_TYPE: Final = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.TaskManifest/1"
MANIFEST_VERSION: Final = 1

DIRECTORY_UNKNOWN: Final = 0
DIRECTORY_NOT_FOUND: Final = 1
DIRECTORY_IS_FILE: Final = 2
DIRECTORY_IS_DIRECTORY: Final = 3
DIRECTORY_CREATED: Final = 4

_WHAT: Final = "task manifest"

_Uri = Annotated[str, msgspec.Meta(min_length=1)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


def _zero() -> int:
    return 0


class FileEntry(msgspec.Struct, gc=False, omit_defaults=True):
    """Entry of a file to publish.

    Attributes:
        s: URI of the file in the task attempt directory.
        d: URI of its destination.
        e: Its identity or etag; None or empty if the store has none.
        u: The file's upload, if it is not a file yet; then `s` does not exist and only names the owner. Not Hadoop's.
        v: The version for the store's preconditions at the time of writing (`FileStatus.version`), if any. Not
            Hadoop's.
    """

    s: _Uri
    d: _Uri
    # A default from a factory is never omitted: Java's tests read the size of empty files too.
    z: _Size = msgspec.field(default_factory=_zero)
    e: str | None = None
    u: UploadEntry | None = None
    v: str | None = None


class DirectoryEntry(msgspec.Struct, gc=False, omit_defaults=True):
    """Entry of a directory to create at the destination.

    Attributes:
        t: State at task commit: 0 unknown, 1 absent, 2 a file, 3 a directory, 4 created by the job.
        l: Its depth below the destination; 1 for a child.
    """

    d: _Uri
    t: int = msgspec.field(default_factory=_zero)
    l: int = msgspec.field(default_factory=_zero)


class TaskManifest(msgspec.Struct, kw_only=True):
    """Output of one task attempt. Field names and their order are Hadoop's.

    Attributes:
        extraData: Free text by key; this engine's tasks add the name of their job's setup.
        jobId: The job's id, without a job attempt.
        taskAttemptDir: URI of the task attempt directory. Never used: it is as untrusted as the rest.
        directories: Directories that must exist at the destination; parents come before children.
    """

    extraData: dict[str, str] = {}
    type: str = MANIFEST_TYPE
    version: int = MANIFEST_VERSION
    jobId: str = ""
    jobAttemptNumber: int = 0
    taskID: str = ""
    taskAttemptID: str = ""
    taskAttemptDir: str = ""
    files: list[FileEntry] = []
    directories: list[DirectoryEntry] = []
    iostatistics: LazyStatistics = None

    def statistics(self, *, source: str = "") -> IOStatistics:
        """Decodes the statistics, empty if absent; raises RecordError if they are not in Hadoop's form."""
        return statistics_of(self.iostatistics, source=source)


class _Header(msgspec.Struct, kw_only=True):
    type: str
    version: int


class _StoredManifest(_Header, kw_only=True):
    extraData: dict[str, str] | None = None
    jobId: str = ""
    jobAttemptNumber: int = 0
    taskID: str = ""
    taskAttemptID: str = ""
    taskAttemptDir: str = ""
    files: list[FileEntry] = []
    directories: list[DirectoryEntry] = []
    iostatistics: msgspec.Raw = msgspec.Raw(b"null")


def encode_task_manifest(manifest: TaskManifest) -> bytes:
    """Encodes a task manifest as Hadoop's JSON: Java loads it, and prints it the same."""
    return encode(manifest)


def decode_task_manifest(data: bytes, *, source: str, names_checked: bool = True) -> TaskManifest:
    """Decodes a task manifest, whose names may lie anywhere (see `relative_names`).

    With `names_checked` False, URIs are not read and destinations not compared, which `relative_names` does too.
    Raises RecordError, with file and member, if the manifest could not be committed.
    """
    try:
        stored = decode(data, _StoredManifest, source=source, what=_WHAT)
    except RecordError:
        # Report another type or version before any unexpected member.
        _check_header(decode(data, _Header, source=source, what=_WHAT), source)
        raise
    _check_header(stored, source)
    if names_checked:
        destinations = read_uris([entry.d for entry in stored.files], field="files[%d].d", what=_WHAT, source=source)
        _refuse_twice(destinations, "files[%d].d", "another entry has the same destination", source)
        read_uris([entry.s for entry in stored.files], field="files[%d].s", what=_WHAT, source=source)
        read_uris([entry.d for entry in stored.directories], field="directories[%d].d", what=_WHAT, source=source)
    return TaskManifest(**members_of(stored))


class RelativeNames(NamedTuple):
    """Names of a manifest's entries, in its order; see `relative_names`."""

    sources: list[str]
    destinations: list[str]
    directories: list[str]


def relative_names(
    manifest: TaskManifest, *, destination: StorePath, source_root: StorePath, source: str, roots: Collection[str] = ()
) -> RelativeNames:
    """Proves that a manifest names only permitted places, and returns its entries' decoded names.

    URIs are compared as read, so ``file:/x``, ``file:///x`` and ``/x`` are one. About 1 microsecond per entry if
    nothing is escaped; about 3 otherwise.

    Args:
        destination: Every destination must lie strictly below it, or below one of `roots`.
        source_root: Every source must lie strictly below it, such as the directory of the job's task attempts.
        roots: Absolute paths of the destination's store, none below another, that the caller permits.

    Returns:
        Sources below `source_root`; destinations and directories below `destination`, or as absolute paths below
        one of `roots`.

    Raises:
        RecordError: An entry lies elsewhere, at a name that the commit protocols own (`check_file_name`), or two
            entries have one source or one destination.
    """
    files, directories = manifest.files, manifest.directories
    source_uris, target_uris = [entry.s for entry in files], [entry.d for entry in files]
    made_uris = [entry.d for entry in directories]
    sources, targets = plain_names_below(source_root, source_uris), plain_names_below(destination, target_uris)
    if sources is None:
        sources = _names_below(source_root, source_uris, "files[%d].s", source)
    if targets is None:
        targets = _names_below(destination, target_uris, "files[%d].d", source, roots)
    made = plain_names_below(destination, made_uris)
    if made is None:
        made = _names_below(destination, made_uris, "directories[%d].d", source, roots)
    _refuse_twice(sources, "files[%d].s", "another entry has the same source", source)
    _refuse_twice(targets, "files[%d].d", "another entry has the same destination", source)
    _refuse_reserved(targets, "files[%d].d", source)
    _refuse_reserved(made, "directories[%d].d", source)
    return RelativeNames(sources, targets, made)


def _check_header(header: _Header, source: str) -> None:
    if header.type != MANIFEST_TYPE:
        raise bad_record(_WHAT, "type", f"{header.type!r} is not {MANIFEST_TYPE!r}", source=source)
    if header.version != MANIFEST_VERSION:
        raise bad_record(_WHAT, "version", f"{header.version} is not {MANIFEST_VERSION}", source=source)


def _names_below(
    base: StorePath, uris: list[str], field: str, source: str, roots: Collection[str] | None = None
) -> list[str]:
    texts = read_uris(uris, field=field, what=_WHAT, source=source)
    prefix = str(base) if base.path == "/" else f"{base}/"
    cut = len(prefix)
    names = [text[cut:] for text in texts if text.startswith(prefix)]
    if len(names) == len(texts) and not (base.path == "/" and "" in names):
        return names
    return [
        text[cut:]
        if text.startswith(prefix) and len(text) > cut
        else _name_outside(base, text, field % index, source, roots)
        for index, text in enumerate(texts)
    ]


def _name_outside(base: StorePath, text: str, field: str, source: str, roots: Collection[str] | None) -> str:
    """Returns the absolute path of a name that lies below one of `roots`, not below `base`."""
    store = str(StorePath(base.scheme, base.authority, ""))
    refused = bad_record(_WHAT, field, f"{text} does not lie below {base}", source=source)
    other = _other_destination(base, text)
    if other:
        refused.next_step = (
            f"the job's tasks named the destination {other}: name it so, where a link leads from one to the other; "
            "where it was moved from there, move it back"
        )
        raise refused
    if roots is None or not text.startswith(f"{store}/"):
        scheme, _, rest = text.partition(":")
        if f"{base.scheme}:{rest}".startswith(f"{base}/"):
            refused.next_step = f"name the destination as its tasks did, with {scheme}: in place of {base.scheme}:"
        raise refused
    try:
        return check_absolute_name(text[len(store) :], roots)
    except InvalidPathError as error:
        if roots:
            refused = bad_record(_WHAT, field, f"{text} does not lie below {base}: {error.message}", source=source)
        refused.next_step = (
            "if its task may write there, give the roots that the job was opened with again: "
            "config=CommitterConfig(absolute_roots=(...)), or -o absolute_roots=ROOT,ROOT on the command line"
        )
        raise refused from error


def _other_destination(base: StorePath, text: str) -> str:
    """Returns the destination that the job's tasks named, if it differs from the caller's; else empty."""
    own, between, job = str(base).rpartition(f"/{TEMPORARY}/")
    other, found, _name = text.partition(f"/{TEMPORARY}/{job}/")
    is_other_place = other.partition(":")[2] != own.partition(":")[2]
    return other if between and found and is_other_place else ""


def _refuse_twice(texts: list[str], field: str, reason: str, source: str) -> None:
    if len(set(texts)) == len(texts):
        return
    seen: set[str] = set()
    for index, text in enumerate(texts):
        if text in seen:
            raise bad_record(_WHAT, field % index, f"{reason}: {text}", source=source)
        seen.add(text)


def _refuse_reserved(names: list[str], field: str, source: str) -> None:
    if not may_be_reserved(names):
        return
    # Absolute names were already checked against their roots.
    suspects = [index for index, name in enumerate(names) if name[0] == "_" or ("/_" in name and name[0] != "/")]
    for index in suspects:
        try:
            check_file_name(names[index])
        except InvalidPathError as error:
            raise bad_record(_WHAT, field % index, f"{error.message}: {names[index]}", source=source) from error
