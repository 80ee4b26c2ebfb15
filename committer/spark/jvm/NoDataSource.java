package io.github.lakecommitter.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Answers for the format "committer" on Spark 3.5, which has no data sources in Python, with what to use instead. */
public final class NoDataSource implements TableProvider, DataSourceRegister {
  /** Later releases prefer a format of this name to Python's data source. */
  @Override
  public String shortName() {
    return Driver.spark().startsWith("3.") ? "committer" : "committer on Spark 3";
  }

  /** Spark calls this first, for writes, streams and reads. */
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    throw new UnsupportedOperationException(
        "format(\"committer\") needs Spark 4.0 or later, and this is " + Driver.spark() + "; outcome: unchanged; next"
            + " step: use df.write.parquet, another format of files, a table, or committer.spark.write, which commit by"
            + " Spark's own writers in a session of committer.spark.configure");
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    throw new IllegalStateException("inferSchema raised");
  }
}
