import java.io.IOException;
import java.lang.management.ManagementFactory;

import com.sun.management.OperatingSystemMXBean;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.OutputCommitter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitter;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import scala.Option;
import scala.collection.immutable.Seq;

/** Spark's own commit protocol with Hadoop's FileOutputCommitter, whose job commit meets a store that is far away. */
public class FarCommits extends SQLHadoopMapReduceCommitProtocol {
  private static final OperatingSystemMXBean SYSTEM =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
  private static volatile double seconds;
  private static volatile double processor;
  private static volatile long calls;

  public FarCommits(String jobId, String path, boolean dynamicPartitionOverwrite) {
    super(jobId, path, dynamicPartitionOverwrite);
  }

  /** What the latest job commit took. */
  public static double seconds() {
    return seconds;
  }

  /** The CPU time of the process meanwhile. */
  public static double processor() {
    return processor;
  }

  /** How many calls of the store it made. */
  public static long calls() {
    return calls;
  }

  @Override
  public void commitJob(JobContext context, Seq<FileCommitProtocol.TaskCommitMessage> messages) {
    CommitBench.SlowFileSystem.CALLS.clear();
    CommitBench.SlowFileSystem.latency = context.getConfiguration().getLong("benchmark.latency-ms", 0);
    long used = SYSTEM.getProcessCpuTime();
    long started = System.nanoTime();
    try {
      super.commitJob(context, messages);
    } finally {
      seconds = (System.nanoTime() - started) / 1e9;
      processor = (SYSTEM.getProcessCpuTime() - used) / 1e9;
      calls = CommitBench.SlowFileSystem.CALLS.values().stream().mapToLong(count -> count.sum()).sum();
      CommitBench.SlowFileSystem.latency = 0;
    }
  }

  /** Hadoop's manifest committer, bound as Spark's PathOutputCommitProtocol binds it, which PySpark does not bring. */
  public static final class Manifest extends FarCommits {
    private final String destination;
    private transient ManifestCommitter committer;

    public Manifest(String jobId, String path, boolean dynamicPartitionOverwrite) {
      super(jobId, path, dynamicPartitionOverwrite);
      destination = path;
    }

    @Override
    public OutputCommitter setupCommitter(TaskAttemptContext context) {
      try {
        committer = new ManifestCommitter(new Path(destination), context);
      } catch (IOException error) {
        throw new java.io.UncheckedIOException(error);
      }
      return committer;
    }

    @Override
    public String newTaskTempFile(TaskAttemptContext context, Option<String> directory, FileNameSpec spec) {
      Path work = committer.getWorkPath();
      Path parent = directory.isDefined() ? new Path(work, directory.get()) : work;
      return new Path(parent, getFilename(context, spec)).toString();
    }
  }
}
