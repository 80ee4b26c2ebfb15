"""Hatch build hook that compiles the jar of Spark's commit protocol into the wheel and the sdist; needs a JDK.

A build without one fails, unless LAKE_COMMITTER_WITHOUT_JARS=1 asks for a wheel without the jar. A wheel that is
built from an sdist uses the sdist's jar.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JVM = Path(__file__).parent / "committer" / "spark" / "jvm"
WITHOUT = "LAKE_COMMITTER_WITHOUT_JARS"


class JarHook(BuildHookInterface):  # type: ignore[type-arg]
    """Build hook for wheels and sdists. An editable install is left out: its jar is built at the first use."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the jar and has it packed."""
        if version == "editable" or os.environ.get(WITHOUT) == "1":
            return
        spec = importlib.util.spec_from_file_location("building", JVM / "building.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"{JVM / 'building.py'} is missing")
        building = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(building)
        if building.release_of(building.PACKAGED) == building.release():
            return
        self._directory = tempfile.TemporaryDirectory(prefix="committer-spark-")
        jar = Path(self._directory.name, building.PACKAGED.name)
        try:
            building.build(jar)
        except building.CannotBuildError as error:
            self.app.abort(
                f"the jar of Spark's commit protocol cannot be built: {error}. Nothing was built. Install a JDK of"
                f" Java 17 or later, or set {WITHOUT}=1: a wheel without the jar cannot commit df.write where no JDK is"
            )
        build_data["force_include"][str(jar)] = f"committer/spark/jvm/{jar.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Deletes the temporary directory of the jar."""
        if hasattr(self, "_directory"):
            self._directory.cleanup()
