"""Names by which Hadoop, its forks and their documents call committers, and what to ask for here in their place."""

from __future__ import annotations

from typing import Final

_MANIFEST = "use 'manifest'"
_FILE = (
    "use 'file-v1', or 'file-v2' where algorithm 2 is meant; where no process of Hadoop's takes part, 'manifest' does "
    "the same with fewer calls"
)
_MAGIC = "use 'magic'"
_DIRECTORY = "use 'directory'"
_PARTITIONED = "use 'partitioned'"
_STAGING = "use 'directory' or 'partitioned': it is what they are made of, and a committer for Hadoop's own tests only"
_OF_THE_STORE = "leave the name out, and the job has the committer that suits its store"
_DIRECT = (
    "use 'stocator' on an object store: its tasks write where readers see it, too, and `_SUCCESS` names the files that "
    "count; else leave the name out"
)
_OSS = "leave the name out: `oss:` paths have the committer `magic`, as JindoOSS has by default"
_IN_TASKS = "use 'magic': it completes the same uploads when the job commits, not when tasks do"
_MARKERS = "leave the name out: its readers go by markers that no other reader knows"

_INSTEAD: Final = {
    "file": _FILE,
    "fileoutputcommitter": _FILE,
    "fileoutputcommitterfactory": _FILE,
    "parquetoutputcommitter": _FILE,
    "manifestcommitter": _MANIFEST,
    "manifestcommitterfactory": _MANIFEST,
    "azuremanifestcommitterfactory": _MANIFEST,
    "magicv2": _MAGIC,
    "magics3guardcommitter": _MAGIC,
    "magics3guardcommitterfactory": _MAGIC,
    "staging": _STAGING,
    "stagingcommitter": _STAGING,
    "stagingcommitterfactory": _STAGING,
    "s3multipartoutputcommitter": _STAGING,
    "directorystagingcommitter": _DIRECTORY,
    "directorystagingcommitterfactory": _DIRECTORY,
    "s3directoryoutputcommitter": _DIRECTORY,
    "partitionedstagingcommitter": _PARTITIONED,
    "partitionedstagingcommitterfactory": _PARTITIONED,
    "s3partitionedoutputcommitter": _PARTITIONED,
    "s3acommitterfactory": _OF_THE_STORE,
    "namedcommitterfactory": _OF_THE_STORE,
    "bindingpathoutputcommitter": _OF_THE_STORE,
    "bindingparquetoutputcommitter": _OF_THE_STORE,
    "pathoutputcommitprotocol": _OF_THE_STORE,
    "direct": _DIRECT,
    "directoutputcommitter": _DIRECT,
    "directparquetoutputcommitter": _DIRECT,
    "jindo": _OSS,
    "jindoosscommitter": _OSS,
    "jindoosscommitterfactory": _OSS,
    "jindoossdirectcommitter": _OSS,
    "emrfs": _IN_TASKS,
    "emroptimizedsparksqlparquetoutputcommitter": _IN_TASKS,
    "dbio": _MARKERS,
    "databricks": _MARKERS,
}


def instead_of(name: str) -> str | None:
    """What to ask for in place of a committer of that name, or of that class of Java's; None where it is not known."""
    return _INSTEAD.get(name.strip().rpartition(".")[2].lower())
