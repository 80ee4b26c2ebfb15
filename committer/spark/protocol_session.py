"""Connects Spark sessions to this engine: `configure`, called before the session starts.

For every write of a file format (``df.write``, SQL, a table) Spark creates a `CommitProtocol` (Java). It calls
`JobSide` in this Python process over py4j, on a thread of its own, so a commit continues if the writing thread is
interrupted.
"""

from __future__ import annotations

import base64
import importlib.util
import logging
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from pyspark.sql import SparkSession

from committer.advice import page
from committer.committers.results import JobReport
from committer.errors import UnsupportedError
from committer.events import Listener
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.spark.commit_log import DriverLog
from committer.spark.job_side import answered, refuse_conflicts, refuse_other_release
from committer.spark.protocol_jar import check_spark, jar_path
from committer.spark.publishing import SparkPool
from committer.spark.session_settings import checked
from committer.spark.sessions import JARS, default_file_system, is_connect, running_gateway, with_jar

Session = TypeVar("Session", SparkSession.Builder, SparkSession)

PROTOCOL: Final = "io.github.lakecommitter.spark.CommitProtocol"
"""Value of ``spark.sql.sources.commitProtocolClass``."""

PROTOCOL_KEY: Final = "spark.sql.sources.commitProtocolClass"
_JOB_SIDE: Final = "io.github.lakecommitter.spark.Driver$JobSide"


class _Process:
    """State of this process: the latest report, and what its JVM has; `sources` is the context with a data source."""

    report: JobReport | None = None
    side: JobSide | None = None
    sources: Any = None


def is_committing(session: Any) -> bool:
    """Reports whether Spark's own writers commit through this process in a session."""
    if is_connect(session):
        return False
    return _Process.side is not None and session.conf.get(PROTOCOL_KEY, "") == PROTOCOL


def choices_of_process(session: Any) -> CommitterConfig | None:
    """Returns the options that `configure` was given for sessions of this process, if any."""
    side = _Process.side
    if side is None or is_connect(session):
        return None
    # A session created after one was stopped is not configured.
    return side.config if session.sparkContext is side.context else None


def last_report() -> JobReport | None:
    """Returns the report of the latest job that Spark's own writers committed through this process; None before
    the first.

    Of concurrent writes it is the one that ended last; `JobReport.job_id` is part of its files' names.
    """
    return _Process.report


def configure(
    target: Session,
    *,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
) -> Session:
    """Makes all of Spark's own writers commit through this engine: ``df.write``, ``saveAsTable``, ``INSERT`` and CTAS.

        spark = committer.spark.configure(SparkSession.builder).getOrCreate()
        df.write.partitionBy("day").mode("overwrite").parquet("/data/events")

    Sets ``spark.jars`` and ``spark.sql.sources.commitProtocolClass``; setting the latter to another class, also in
    the running session, turns it off. Data that a write replaces stays until all new data is in place.

    Args:
        target: The builder of this process's first session, whose JVM then starts with the jar. Or a classic
            session whose JVM already has the jar (``spark-submit --jars``).
        config: Options for every job of this package in the session; they replace the session's ``spark.hadoop.*``
            keys. An option of a write, an argument of a call and a later ``spark.conf.set`` win. The save mode
            alone decides about existing data.
        storage_options: How Python reaches the store that knows all of these options, in place of the session's
            settings; also objects such as a credential, which stay in this process. Other stores are reached by
            the session's settings.
        progress: True to show progress of commits, as with `committer.open_job`; a callable receives each event.

    Returns:
        The builder, whose `getOrCreate` connects the session to this process; or the session.

    Raises:
        UnsupportedError: There is no jar and none can be built (`jar_path`); the JVM runs without it or with the
            jar of another release; or the session is one of Spark Connect.
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
        # The JVM's class path is fixed, and its spark.jars, which executors get, must stay.
        _driver_of(gateway)
    target.config(PROTOCOL_KEY, PROTOCOL)
    create = target.getOrCreate

    def get_or_create() -> SparkSession:
        session = create()
        try:
            return configure(session, config=config, storage_options=storage_options, progress=progress)
        except BaseException:
            # An existing session got the class from the builder, too, and could not write files with it.
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
    """Registers the data source ``committer`` with the session's options and default file system.

    Spark runs the data source in a process that can read neither. An earlier registration is replaced, as it has
    old values.
    """
    file_system, context = default_file_system(session), session.sparkContext
    if choices is None and file_system.startswith("file:") and _Process.sources is not context:
        return
    # The data source needs both; PySpark 3.5 has no data sources in Python.
    if importlib.util.find_spec("pyarrow") is None or importlib.util.find_spec("pyspark.sql.datasource") is None:
        return
    from committer.spark.datasource import source_with

    session.dataSource.register(source_with(choices, file_system))
    _Process.sources = context


def connect(session: SparkSession, side: JobSide) -> None:
    """Registers the job side with the session's JVM."""
    from pyspark.java_gateway import ensure_callback_server_started

    if is_connect(session):
        raise _of_connect()
    gateway: Any = session.sparkContext._gateway
    driver = _driver_of(gateway)
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    side.driver, side.context = driver, session.sparkContext
    driver.register(side)
    _Process.side = side


def _driver_of(gateway: Any) -> Any:
    """Returns Java's class `Driver`; refuses a JVM without the jar or with another release's."""
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
    check_spark(str(driver.spark()), operation="configure")
    return driver


def _of_connect() -> UnsupportedError:
    return UnsupportedError(
        "a client of Spark Connect cannot commit for its server",
        operation="configure",
        next_step="start the server with the jar and the settings of the commit protocol"
        f" ({page('spark.md#spark-connect')}), or use committer.spark.write, which works through Connect on Spark 4",
    )


def unpacked(request: str) -> str:
    """Returns a Java request as JSON; Java compresses a long one, in Base64."""
    return request if request.startswith("{") else zlib.decompress(base64.b64decode(request)).decode()


class JobSide:
    """Python object that Java calls, on a thread of py4j."""

    class Java:
        """py4j's declaration of implemented interfaces."""

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
        """Answers a request from Java."""
        log = DriverLog(self.driver.note)

        def committed(report: JobReport) -> None:
            _Process.report = report
            log.say(
                f"job {report.job_id} committed {report.files_committed} files, {report.bytes_committed} bytes in"
                f" {report.duration_s:.1f} s"
            )

        return answered(
            operation,
            unpacked(request),
            config=self.config,
            progress=self._progress,
            storage=self._storage,
            committed=committed,
            listeners=(log,),
            pool_of=partial(SparkPool, self.context),
        )
