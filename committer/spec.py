"""The class JobSpec: what any process needs to take part in a job. Picklable, JSON, no secrets."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias, TypeVar

import msgspec

from committer.errors import ConfigurationError, RecordError
from committer.layout import JobLayout, check_job_id, check_number, check_setup
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.options.hadoop import hadoop_user
from committer.paths import StorePath
from committer.readable import UNDECODABLE, encoded

Delivery: TypeAlias = Literal["listing", "message"]

_Layout = TypeVar("_Layout", bound=JobLayout)


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job as every process that works on it must see it.

    Attributes:
        destination: URI of the directory the job writes to, with percent escapes, as in records. Functions that
            take a destination take a plain path: `layout.destination`.
        committer: The committer's name; empty for the store's default, until the job is opened.
        delivery: How the driver learns of task commits: ``listing`` or ``message``.
        job_attempt: Hadoop's job attempt number.
        config: The job's options.
        hadoop: Whether Hadoop's committer set the job up (there is no setup record then).
        setup: Nonce of this setup of the id, drawn by `open_job`. Empty for a job of Hadoop's.
        records_at: Place of the task records, if not below the destination: shown to users, and compared with
            the caller's `pending_set_directory`; a stored record never makes the engine access a place.
    """

    destination: str
    job_id: str
    committer: str = "manifest"
    delivery: Delivery = "listing"
    job_attempt: int = 0
    config: CommitterConfig = msgspec.field(default_factory=CommitterConfig)
    hadoop: bool = False
    setup: str = ""
    records_at: str = ""

    @classmethod
    def for_hadoop(
        cls,
        dest: str | os.PathLike[str] | StorePath,
        job_id: str,
        job_attempt: int = 0,
        *,
        config: ConfigLike | None = None,
        committer: str | None = None,
    ) -> JobSpec:
        """Describes a job that Hadoop's committer set up: join it with `open_task`, or commit it with `attach_job`.

        Args:
            dest: The job's destination.
            job_id: Its unique id: ``fs.s3a.committer.uuid`` of the magic committer or
                ``spark.sql.sources.writeJobUUID`` where set, else ``job_<X>_<N>``.
            job_attempt: ``mapreduce.job.application.attempt.id``: 0 in Spark, in MapReduce 1 for the first. A job
                without that attempt is refused.
            config: Options; `hadoop_driver=True` if a Java driver will commit the job.
            committer: The committer's name; the store's default when None: ``magic`` on S3, else ``manifest``.
        """
        choices = config_of(config) or CommitterConfig()
        if choices.pending_set_directory and not choices.pending_set_user:
            # Tasks on other machines may run as another user.
            choices = choices.replace(pending_set_user=hadoop_user())
        return cls(
            destination=StorePath.of(dest).uri,
            job_id=check_job_id(job_id),
            committer=committer or "",
            job_attempt=check_number(job_attempt, "job_attempt"),
            config=choices,
            hadoop=True,
        )

    @property
    def layout(self) -> JobLayout:
        """The paths that every committer uses; `Committer.layout` knows the task records too."""
        return self.laid_out(JobLayout)

    def laid_out(self, kind: type[_Layout]) -> _Layout:
        """Returns the job's paths in a committer's own layout."""
        destination = StorePath.from_uri(self.destination)
        return kind(destination, self.job_id, self.job_attempt, self.config.absolute_roots, setup=self.setup)

    @property
    def unique_id(self) -> str:
        """The id of this setup of the job, ``<job id>~<setup>``. Give it to Hadoop's committers as the job's id.

        S3A's read it from ``fs.s3a.committer.uuid``. Spark sets ``spark.sql.sources.writeJobUUID`` itself.
        """
        return self.layout.unique_id

    def encode(self) -> bytes:
        """Returns the spec as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview | str) -> JobSpec:
        """Reads the output of `encode`; raises `RecordError` for anything else."""
        try:
            spec = msgspec.json.decode(encoded(data), type=cls)
            check_job_id(spec.job_id)
            check_number(spec.job_attempt, "job_attempt")
            check_setup(spec.setup)
            StorePath.from_uri(spec.destination)
        except (*UNDECODABLE, TypeError, ConfigurationError) as error:
            raise RecordError(
                f"not a job spec: {error}",
                operation="decode JobSpec",
                next_step="pass what JobSpec.encode() returned, whole, with the same release on both sides",
            ) from error
        return spec
