"""Puts the jar of Spark's commit protocol into the wheel, where it can be built: a JDK, and Spark's jars.

A build without them succeeds and says so; there `committer.spark.jar_path()` builds the jar when it is first needed.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JVM = Path(__file__).parent / "committer" / "spark" / "jvm"


class JarHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs at every build of a wheel; not for an editable one, whose sources may change."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the jar and has it packed."""
        if self.target_name != "wheel" or version == "editable":
            return
        spec = importlib.util.spec_from_file_location("building", JVM / "building.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"{JVM / 'building.py'} is missing")
        building = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(building)
        self._directory = tempfile.TemporaryDirectory(prefix="committer-spark-")
        jar = Path(self._directory.name, building.PACKAGED.name)
        try:
            building.build(jar)
        except building.CannotBuildError as error:
            self.app.display_warning(
                f"the wheel is built without the jar of Spark's commit protocol: {error}. With a JDK of Java 17 or"
                " later and SPARK_HOME set to a PySpark with jars it would have it"
            )
            return
        build_data["force_include"][str(jar)] = f"committer/spark/jvm/{jar.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was built on the way."""
        if hasattr(self, "_directory"):
            self._directory.cleanup()
