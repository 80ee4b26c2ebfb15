"""Where the staging committers keep what tasks tell by listing, if the caller named a place for it: as S3A's do.

Below the caller's place P (``fs.s3a.committer.staging.tmp.path``), of user U, job J, attempt N, on whatever store::

    P/U/J/staging-uploads/_temporary/N/<task>                      a pending set under the task's name
    P/U/J/staging-uploads/_temporary/N/_<attempt>-<nonce>.tmp      one that is being written

Hadoop's drivers read the files there whose names begin neither with an underscore nor with a period. Without such a
place records are task manifests where every committer has them (`committer.layout`); all else is there in any case.

Source of the names: ``Paths.getMultipartUploadCommitsDirectory``, ``FileOutputCommitter``.
"""

from __future__ import annotations

from typing import ClassVar, Final

from committer.hadoop_user import hadoop_user
from committer.layout import TEMPORARY, JobLayout
from committer.paths import StorePath
from committer.spec import JobSpec

_UPLOADS: Final = "staging-uploads"
_NAMED: Final = "pending-sets/"


class PlacedLayout(JobLayout):
    """The paths of a job whose task records are in a place of the caller's."""

    record_suffix: ClassVar[str] = ""
    record_kind: ClassVar[str] = "pending set"
    hidden: ClassVar[str] = "_"
    keeps_elsewhere: ClassVar[bool] = True

    def keep_records_below(self, place: StorePath) -> None:
        """Says where the place is that all jobs of one user share."""
        root = place / self.unique_id / _UPLOADS
        self.record_root: StorePath | None = root
        self.manifests: StorePath = root / TEMPORARY / str(self.job_attempt)

    def is_record(self, name: str) -> bool:
        """What Hadoop's drivers would read."""
        return not name.startswith(("_", "."))

    def record_name(self, path: StorePath) -> str:
        """Of a pending set its bare name, behind what no name in the job's directory begins with."""
        return f"{_NAMED}{path.name}" if path.parent == self.manifests else super().record_name(path)

    def record_path(self, name: str) -> StorePath:
        """Where the record of that name is."""
        return self.manifests / name.removeprefix(_NAMED) if name.startswith(_NAMED) else super().record_path(name)


def placed_layout(spec: JobSpec) -> PlacedLayout | None:
    """The layout of a job by listing whose caller named a place; None of every other."""
    config = spec.config
    if spec.delivery != "listing" or not config.pending_set_directory:
        return None
    layout = spec.laid_out(PlacedLayout)
    layout.keep_records_below(StorePath.of(config.pending_set_directory) / (config.pending_set_user or hadoop_user()))
    return layout
