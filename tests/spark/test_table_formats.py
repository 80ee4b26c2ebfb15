"""Tables of Delta and Iceberg, by their real jars, in a session of `configure`: their own protocols write them, and parquet beside them is ours.

Neither has a release for the Spark of the locked environment, whose classes they do not find (Spark 4.3, Delta 4.4.0, Iceberg 1.12.0). So:

    uv run --with 'pyspark==4.1.*' pytest -m slow tests/spark/test_table_formats.py

Hudi has no release for Spark 4 that Maven Central names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark")

PACKAGES = "io.delta:delta-spark_4.1_2.13:4.4.0,org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.skipif(
        not pyspark.__version__.startswith("4.1."),
        reason="Delta 4.4.0 and Iceberg 1.12.0 are compiled for Spark 4.1: uv run --with 'pyspark==4.1.*' pytest …",
    ),
]

# Arguments: the packages, a folder. It prints one JSON object.
DRIVER = """
import json, sys
from pathlib import Path

import committer.spark
from committer.spark.examining import configure_environment
from pyspark.sql import SparkSession

packages, folder = sys.argv[1], Path(sys.argv[2])
configure_environment()
builder = SparkSession.builder.master("local[2]").config(map={
    "spark.jars.packages": packages,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": str(folder / "warehouse"),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.iceberg.type": "hadoop",
    "spark.sql.catalog.iceberg.warehouse": str(folder / "iceberg"),
})
spark = committer.spark.configure(builder).getOrCreate()
rows = spark.range(0, 100, 1, 4).selectExpr("id", "id % 5 p")
delta = str(folder / "delta")
rows.write.format("delta").partitionBy("p").save(delta)
rows.write.format("delta").mode("append").save(delta)
appended = spark.read.format("delta").load(delta).count()
rows.limit(10).write.format("delta").mode("overwrite").save(delta)
spark.sql("create table merged using delta as select * from range(10)")
spark.sql(
    "merge into merged t using (select id + 5 id from range(10)) s on t.id = s.id"
    " when matched then update set id = s.id + 100 when not matched then insert *"
)
spark.sql("create table iceberg.db.t using iceberg partitioned by (p) as select id, id % 5 p from range(100)")
spark.sql("insert into iceberg.db.t select id, id % 5 from range(10)")
inserted = spark.table("iceberg.db.t").count()
spark.sql("insert overwrite iceberg.db.t select id, id % 5 from range(20)")
reports_of_tables = committer.spark.last_report() is not None
rows.write.partitionBy("p").parquet(str(folder / "parquet"))
print(json.dumps({
    "delta": [appended, spark.read.format("delta").load(delta).count(), spark.table("merged").count()],
    "iceberg": [inserted, spark.table("iceberg.db.t").count()],
    "reports of tables": reports_of_tables,
    "parquet": [committer.spark.last_report().files_committed, spark.read.parquet(str(folder / "parquet")).count()],
}))
spark.stop()
"""


def test_tables_keep_their_own_protocols(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, PACKAGES, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found == {"delta": [200, 10, 15], "iceberg": [110, 20], "reports of tables": False, "parquet": [20, 100]}
    left = [path for path in tmp_path.rglob("*") if path.name.startswith("_temporary")]
    assert left == []
    assert json.loads((tmp_path / "parquet" / "_SUCCESS").read_text())["committer"] == "manifest"
    assert not list((tmp_path / "delta").glob("_SUCCESS*"))
