package io.github.lakecommitter.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Locale;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.Seq;

/**
 * Commit protocol of Spark's own writers: jobs in Python, task attempts here.
 *
 * <p>Spark creates one object in the driver, calls setupJob, and sends copies to the tasks. The answer to setupJob
 * holds all that a task needs of the job.
 */
public final class CommitProtocol extends FileCommitProtocol implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final long ABORT_BOUND_S = 30;
  private static final Logger LOG = LoggerFactory.getLogger(CommitProtocol.class);

  private final String jobId;
  private final String destination;
  private final boolean dynamic;
  private final ArrayList<String> superseded = new ArrayList<>();
  private String setup;
  private transient TaskOutput output;

  public CommitProtocol(String jobId, String destination, boolean dynamicPartitionOverwrite) {
    this.jobId = jobId;
    this.destination = destination;
    this.dynamic = dynamicPartitionOverwrite;
  }

  // -- the job, in the driver ------------------------------------------------------------------------------------

  /** Records what an overwrite replaces and deletes nothing: old files stay until all new ones are in place. */
  @Override
  public boolean deleteWithJob(FileSystem fs, Path path, boolean recursive) {
    if (setup != null || !recursive) {
      throw new CommitException(
          "Spark asked to delete " + path + (recursive ? " after job setup" : " without what is in it")
              + ", which this protocol cannot do; outcome: unchanged; next step: report the query that did it");
    }
    superseded.add(fs.makeQualified(path).toString());
    return true;
  }

  @Override
  public void setupJob(JobContext context) {
    ObjectNode request = Driver.JSON.createObjectNode();
    Configuration configuration = context.getConfiguration();
    Path place = qualified(configuration);
    request.put("job_id", jobId).put("destination", place.toString()).put("dynamic", dynamic);
    superseded.forEach(request.putArray("superseded")::add);
    StoreSettings.add(configuration, place, request);
    StoreSettings.addOutputCommitters(configuration, request.putObject("output_committers"));
    setup = Driver.ask("setup", request, jobId, destination).toString();
    try {
      TaskOutput.checkSeen(read(setup), configuration);
    } catch (RuntimeException | Error error) {
      // Spark aborts no job whose setup failed.
      abortJob(context);
      throw error;
    }
  }

  /** Some callers in Spark give an incomplete path, and Python may have another working directory. */
  private Path qualified(Configuration configuration) {
    try {
      Path path = new Path(destination);
      return path.getFileSystem(configuration).makeQualified(path);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Overrides Spark's method of Scala 2.13, whose Seq is immutable. */
  public void commitJob(JobContext context, scala.collection.immutable.Seq<TaskCommitMessage> messages) {
    commitJob(context, (Seq<TaskCommitMessage>) messages);
  }

  /** Overrides Spark's method of Scala 2.12. */
  public void commitJob(JobContext context, Seq<TaskCommitMessage> messages) {
    ObjectNode request = request(context);
    ArrayNode texts = request.putArray("task_commits");
    for (Iterator<TaskCommitMessage> each = messages.iterator(); each.hasNext(); ) {
      texts.add((String) each.next().obj());
    }
    Driver.ask("commit", request, jobId, destination);
  }

  @Override
  public void abortJob(JobContext context) {
    if (setup == null) {
      return;
    }
    try {
      Driver.ask("abort", request(context), jobId, destination);
    } catch (RuntimeException | Error error) {
      // Spark is about to raise the job's failure, which this must not hide.
      LOG.warn("job {} at {} was not aborted: {}", jobId, destination, error.getMessage());
    }
  }

  private ObjectNode request(JobContext context) {
    JsonNode job = read(setup);
    ObjectNode request = Driver.JSON.createObjectNode().put("spec", job.get("spec").asText());
    StoreSettings.add(context.getConfiguration(), new Path(job.get("destination").asText()), request);
    return request;
  }

  // -- a task attempt, in an executor ----------------------------------------------------------------------------

  @Override
  public void setupTask(TaskAttemptContext context) {
    try {
      output = TaskOutput.begin(read(setup), context);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext context, Option<String> directory, FileNameSpec spec) {
    String name = fileName(context, spec);
    return output.newFile(directory.isDefined() ? directory.get() : "", name).toString();
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext context, Option<String> directory, String extension) {
    return newTaskTempFile(context, directory, new FileNameSpec("", extension));
  }

  @Override
  public String newTaskTempFileAbsPath(TaskAttemptContext context, String directory, FileNameSpec spec) {
    try {
      return output.newFileAt(directory, fileName(context, spec)).toString();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public String newTaskTempFileAbsPath(TaskAttemptContext context, String directory, String extension) {
    return newTaskTempFileAbsPath(context, directory, new FileNameSpec("", extension));
  }

  /** Spark's file name: prefix, part, task number, id of the write, suffix. */
  private String fileName(TaskAttemptContext context, FileNameSpec spec) {
    String base = context.getConfiguration().get("mapreduce.output.basename", "part");
    int task = context.getTaskAttemptID().getTaskID().getId();
    return String.format(Locale.ROOT, "%s%s-%05d-%s%s", spec.prefix(), base, task, jobId, spec.suffix());
  }

  @Override
  public TaskCommitMessage commitTask(TaskAttemptContext context) {
    try {
      return new TaskCommitMessage(output.commit());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void abortTask(TaskAttemptContext context) {
    if (output == null) {
      return;
    }
    try {
      Uninterrupted.call("committer-abort-task", ABORT_BOUND_S, () -> {
        output.abort();
        return null;
      });
    } catch (Exception error) {
      // The rest lies in the job's directory and is deleted with it.
      LOG.warn("a task attempt of job {} was not removed: {}", jobId, error.toString());
    }
  }

  private static JsonNode read(String json) {
    try {
      return Driver.JSON.readTree(json);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
