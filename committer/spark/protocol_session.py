"""A Spark session whose own writers commit through this engine: `configure`, before the session starts.

Spark makes a `CommitProtocol` (Java) for every write of a file format, by ``df.write``, SQL or a table. Its job side
runs in this Python process: Java calls it back over the connection that PySpark has to its JVM, on a thread of its own,
while the thread that writes waits. So a commit goes on where the wait is interrupted.
"""

from __future__ import annotations

import base64
import importlib.util
import logging
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final, overload

from pyspark.sql import SparkSession

from committer.committers.results import JobReport
from committer.errors import UnsupportedError
from committer.events import Listener
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.spark.commit_log import DriverLog
from committer.spark.hadoop_client import default_file_system
from committer.spark.job_side import answered, refuse_other_release, refuse_other_spark
from committer.spark.protocol_jar import jar_path
from committer.spark.protocol_jobs import call_of, refuse_conflicts
from committer.spark.protocol_storage import checked
from committer.spark.publishing import SparkPool
from committer.spark.sessions import JARS, running_gateway, with_jar

PROTOCOL: Final = "io.github.lakecommitter.spark.CommitProtocol"
"""The class that ``spark.sql.sources.commitProtocolClass`` names."""

PROTOCOL_KEY: Final = "spark.sql.sources.commitProtocolClass"
_JOB_SIDE: Final = "io.github.lakecommitter.spark.Driver$JobSide"


class _Last:
    """The report of the latest commit of this process."""

    report: JobReport | None = None


class _Registered:
    """The objects that this process registered with its JVM.

    Attributes:
        side: The job side.
        sources: The Spark context in whose sessions a data source was registered.
    """

    side: JobSide | None = None
    sources: Any = None


def is_committing(session: Any) -> bool:
    """Whether Spark's own writers commit through this process in a session."""
    if type(session).__module__.startswith("pyspark.sql.connect."):
        return False
    return _Registered.side is not None and session.conf.get(PROTOCOL_KEY, "") == PROTOCOL


def choices_of_process(session: Any) -> CommitterConfig | None:
    """The choices that `configure` was given for the sessions of this process; None where it was given none."""
    side = _Registered.side
    if side is None or type(session).__module__.startswith("pyspark.sql.connect."):
        return None
    # A session that comes after one that was stopped was not configured.
    return side.config if session.sparkContext is side.context else None


def last_report() -> JobReport | None:
    """The report of the latest job that one of Spark's own writers committed through this process; None before one.

    Of several writes at once it is that of the one that ended last: `JobReport.job_id` is in the names of its files.
    """
    return _Last.report


@overload
def configure(
    target: SparkSession.Builder,
    *,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
) -> SparkSession.Builder: ...


@overload
def configure(
    target: SparkSession,
    *,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
) -> SparkSession: ...


def configure(
    target: SparkSession.Builder | SparkSession,
    *,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
) -> SparkSession.Builder | SparkSession:
    """Makes all of Spark's own writers commit through this engine: ``df.write``, ``saveAsTable``, ``INSERT`` and CTAS.

        spark = committer.spark.configure(SparkSession.builder).getOrCreate()
        df.write.partitionBy("day").mode("overwrite").parquet("/data/events")

    Sets ``spark.jars`` and ``spark.sql.sources.commitProtocolClass``; setting the latter to another class, in the
    running session too, turns it off. Old data that a write replaces stays until all new data is there.

    Args:
        target: The builder of the first session of this process, whose JVM then starts with the jar. Or a classic
            session whose JVM has the jar already (``spark-submit --jars``).
        config: Choices for every job of this package in the session, in place of those that the session's
            ``spark.hadoop.*`` make. An option of a write wins over the same choice here, and so does an
            argument of a call, and what ``spark.conf.set`` says of it. What happens to old data the save mode chooses.
        storage_options: How Python reaches the store that has all of these options, in place of what the session says;
            objects too, as a credential, which stay in this process. Any other store is reached as the session says.
        progress: True shows how far a commit is, as with `committer.open_job`; a callable is told each event.

    Returns:
        The builder, whose `getOrCreate` connects the session with this process; or the session.

    Raises:
        UnsupportedError: There is no jar, and none can be built here (`jar_path`); the JVM runs without it, or with
            that of another release; or it is Spark Connect.
        ConfigurationError: `config` cannot be honoured, or no store has these `storage_options`.
    """
    choices = config_of(config)
    side = JobSide(choices and refuse_conflicts(choices, "configure"), progress, checked(storage_options))
    if not isinstance(target, SparkSession.Builder):
        connect(target, side)
        target.conf.set(PROTOCOL_KEY, PROTOCOL)
        _give_data_source(target, choices)
        unspelled = names_unspelled(target)
        if unspelled:
            logging.getLogger("committer.spark").warning("%s", "; ".join(unspelled))
        return target
    options: dict[str, Any] = target._options
    if "spark.remote" in options:
        raise _of_connect()
    gateway = running_gateway()
    if gateway is None:
        target.config(JARS, with_jar(options.get(JARS), jar_path()))
    else:
        # Its class path is what it is, and its own spark.jars, which executors get, is not to be lost.
        _driver_of(gateway)
    target.config(PROTOCOL_KEY, PROTOCOL)
    create = target.getOrCreate

    def get_or_create() -> SparkSession:
        session = create()
        try:
            return configure(session, config=config, storage_options=storage_options, progress=progress)
        except BaseException:
            # A session that ran before was given the class, too, and could write no file by it.
            session.conf.unset(PROTOCOL_KEY)
            raise

    target.getOrCreate = get_or_create  # type: ignore[method-assign]
    return target


def names_unspelled(session: SparkSession) -> tuple[str, str] | None:
    """Returns the warning for a driver's JVM that cannot encode file names beyond ASCII; None if it can."""
    jvm: Any = session.sparkContext._jvm
    encoding = str(jvm.java.lang.System.getProperty("sun.jnu.encoding"))
    if encoding.upper().replace("-", "") == "UTF8":
        return None
    said = (
        f"the driver's JVM spells file names in {encoding}: on local disks it writes ? for what that lacks, so "
        "partitions with other letters in their values get a wrong name, or one name"
    )
    return said, "set LC_ALL=C.UTF-8 (Linux) for the driver and the executors before they start"


def _give_data_source(session: SparkSession, choices: CommitterConfig | None) -> None:
    """Registers the data source ``committer`` with the session's choices and default file system.

    Spark runs the data source in a process that can ask for neither. One that was registered before has those of then,
    so it is replaced.
    """
    file_system, context = default_file_system(session), session.sparkContext
    if choices is None and file_system.startswith("file:") and _Registered.sources is not context:
        return
    if importlib.util.find_spec("pyarrow") is None:  # which it needs
        return
    from committer.spark.datasource import source_with

    session.dataSource.register(source_with(choices, file_system))
    _Registered.sources = context


def connect(session: SparkSession, side: JobSide) -> None:
    """Registers the job side with the session's JVM.

    Raises:
        UnsupportedError: It was started without the jar, or with that of another release; or it is Spark Connect.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    if type(session).__module__.startswith("pyspark.sql.connect."):
        raise _of_connect()
    gateway: Any = session.sparkContext._gateway
    driver = _driver_of(gateway)
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    side.driver, side.context = driver, session.sparkContext
    driver.register(side)
    _Registered.side = side


def _driver_of(gateway: Any) -> Any:
    """The class `Driver` of a JVM that was started with this package's jar.

    Raises:
        UnsupportedError: It was started without it, or with that of another release.
    """
    from py4j.java_gateway import JavaClass

    driver = gateway.jvm.io.github.lakecommitter.spark.Driver
    if not isinstance(driver, JavaClass):
        raise UnsupportedError(
            "the JVM of this process was started without the jar of the commit protocol",
            operation="configure",
            next_step="call committer.spark.configure(builder) before the first session of the process; under "
            "spark-submit give --jars what committer.spark.jar_path() returns",
        )
    refuse_other_release(str(driver.release()))
    refuse_other_spark(str(driver.compiledFor()), str(driver.spark()))
    return driver


def _of_connect() -> UnsupportedError:
    return UnsupportedError(
        "a client of Spark Connect cannot commit for its server",
        operation="configure",
        next_step="use committer.spark.write, which works through Connect",
    )


def unpacked(request: str) -> str:
    """A question as JSON: Java compresses a long one, in Base64."""
    return request if request.startswith("{") else zlib.decompress(base64.b64decode(request)).decode()


class JobSide:
    """What Java calls, on a thread of py4j's."""

    class Java:
        """What py4j looks for."""

        implements: ClassVar[tuple[str, ...]] = (_JOB_SIDE,)

    def __init__(
        self,
        config: CommitterConfig | None,
        progress: bool | Listener | None,
        storage: Mapping[str, object] | None = None,
    ) -> None:
        self.config: CommitterConfig | None = config
        self.driver: Any = None
        self.context: Any = None
        self._progress = progress
        self._storage = storage

    def call(self, operation: str, request: str) -> str:
        """Answers one question of Java's."""
        request = unpacked(request)
        asks = call_of(operation, request)
        log = DriverLog(self.driver.note)

        def committed(report: JobReport) -> None:
            _Last.report = report
            if asks is not None:
                asks.committed(report)
            log.say(
                f"job {report.job_id} committed {report.files_committed} files, {report.bytes_committed} bytes in"
                f" {report.duration_s:.1f} s"
            )

        return answered(
            operation,
            request,
            config=self.config,
            progress=self._progress,
            storage=self._storage,
            committed=committed,
            decided=None if asks is None else asks.config,
            failed=None if asks is None else asks.failed,
            listeners=(log,),
            pool_of=partial(SparkPool, self.context),
        )
