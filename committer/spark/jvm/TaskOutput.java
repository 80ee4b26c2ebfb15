package io.github.lakecommitter.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.github.lakecommitter.spark.WrittenFiles.Written;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFileSystem;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptContext;

/** Output of one task attempt: its directory, the files that Spark asked for, and one record, named by job setup. */
final class TaskOutput {
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final int OTHERS_SHOWN = 5;
  /** Type of Hadoop's task manifests. */
  private static final String MANIFEST =
      "org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.TaskManifest/1";

  private final JsonNode job;
  private final Configuration configuration;
  private final int task;
  private final int attempt;
  private final String nonce;
  /** Name of the attempt, unique among its runs. */
  private final String run;
  /** True if files are uploads below S3A's magic directory. */
  private final boolean uploads;
  private final Path destination;
  private final Path directory;
  /** Destination of each file, and its place until the job commits. */
  private final Map<Path, Path> files = new LinkedHashMap<>();

  private TaskOutput(JsonNode job, TaskAttemptContext context) {
    this.job = job;
    this.configuration = context.getConfiguration();
    this.task = context.getTaskAttemptID().getTaskID().getId();
    this.attempt = context.getTaskAttemptID().getId();
    byte[] bytes = new byte[6];
    RANDOM.nextBytes(bytes);
    this.nonce = Driver.hex(bytes);
    this.run = attemptName() + "-" + nonce;
    this.uploads = job.hasNonNull("magic");
    this.destination = new Path(text("destination"));
    this.directory = uploads ? new Path(text("magic"), run + "/__base") : new Path(text("tasks"), run);
  }

  /**
   * Creates the attempt's directory. Refuses a jar of another release, which may expect another layout, and a job
   * that is over: mkdirs may just have created its parents again.
   */
  static TaskOutput begin(JsonNode job, TaskAttemptContext context) throws IOException {
    String release = job.path("release").asText();
    if (!release.equals(Driver.release())) {
      throw new CommitException(
          "the jar of the commit protocol on this executor is of release " + Driver.release() + ", the driver's of "
              + release + "; outcome: unchanged; next step: give driver and executors one jar,"
              + " committer.spark.jar_path(), by spark.jars, and start them anew");
    }
    TaskOutput output = new TaskOutput(job, context);
    output.checkJobStands();
    if (!job.get("directories").asBoolean()) {
      // mkdirs would leave directory objects up to and including the destination.
      return output;
    }
    if (!output.bare(output.directory).mkdirs(output.directory)) {
      throw new IOException("the directory " + output.directory + " could not be made");
    }
    try {
      output.checkJobStands();
    } catch (IOException | RuntimeException error) {
      output.abort();
      throw error;
    }
    return output;
  }

  /** Refuses a job whose setup record this JVM does not see. Nothing is written yet. */
  static void checkSeen(JsonNode job, Configuration configuration) {
    Path mark = new Path(job.get("setup").asText());
    String why;
    try {
      FileSystem fs = bare(mark, configuration);
      if (job.hasNonNull("magic")) {
        PendingUploads.check(fs, new Path(job.get("destination").asText()));
      }
      if (fs.exists(mark)) {
        return;
      }
      why = "there is no " + mark + " for it";
    } catch (IOException error) {
      why = error.toString();
    }
    throw new CommitException(
        "Python set the job up at " + job.get("destination").asText() + ", and this JVM cannot see it: " + why
            + "; outcome: unchanged; next step: give both the same place and the rights to write there: the JVM by"
            + " Hadoop's keys (spark.hadoop.fs.*), Python, where it is to go by others, by"
            + " spark.hadoop.committer.storage.*");
  }

  /** Returns the path for a new file, by its name below the destination. */
  Path newFile(String below, String name) {
    // In one step: each level would parse the path again, which costs in tasks with many files.
    String relative = below.isEmpty() ? name : below + "/" + name;
    return note(new Path(destination, relative), new Path(directory, relative));
  }

  /** Returns the path for a new file of a partition with its own location, below a root of the session. */
  Path newFileAt(String location, String name) throws IOException {
    Path place = new Path(location);
    place = place.getFileSystem(configuration).makeQualified(place);
    boolean known = isIn(place, destination);
    for (JsonNode root : job.get("roots")) {
      known = known || isIn(place, new Path(root.asText()));
    }
    if (!known) {
      throw new CommitException(
          "a partition of the table at " + text("destination") + " has a location of its own, " + place
              + ", and no root names it; outcome: unchanged; next step: set spark.hadoop.committer.absolute_roots to a"
              + " directory that it lies in and the table's does not, in the same store, or move the partition below the table's directory");
    }
    if (uploads) {
      throw new CommitException(
          "a partition of the table at " + text("destination") + " has a location of its own, " + place
              + ", and S3A sends no file there; outcome: unchanged; next step: write that partition as a table of its"
              + " own, or with spark.sql.sources.commitProtocolClass unset");
    }
    // No partition directory has such a name: theirs hold an equals sign.
    return note(new Path(place, name), new Path(new Path(directory, "elsewhere-" + files.size()), name));
  }

  private static boolean isIn(Path place, Path directory) {
    String inner = place.toUri().getPath();
    String outer = directory.toUri().getPath();
    return place.toUri().getScheme().equals(directory.toUri().getScheme())
        && Objects.equals(place.toUri().getAuthority(), directory.toUri().getAuthority())
        && (inner.equals(outer) || inner.startsWith(outer + "/"));
  }

  private Path note(Path target, Path path) {
    if (files.put(target, path) != null) {
      throw new CommitException(
          "Spark asked twice for the file " + target + " in one task attempt; outcome: unchanged; next step: report"
              + " the query that did it, and write with spark.sql.sources.commitProtocolClass unset");
    }
    return path;
  }

  /** Saves the record and returns the message that names it. */
  String commit() throws IOException {
    // Uploads of a run with a nonce carry a stamp, which S3A does not write: here the attempt's number suffices.
    Path place = uploads ? new Path(text("tasks"), attemptName()) : directory;
    ObjectNode manifest = Driver.JSON.createObjectNode().put("type", MANIFEST).put("version", 1);
    manifest.put("jobId", text("unique_id")).put("jobAttemptNumber", 0);
    manifest.put("taskID", String.format(Locale.ROOT, text("task"), task)).put("taskAttemptID", attemptName());
    manifest.put("taskAttemptDir", place.toUri().toString());
    ArrayNode entries = manifest.putArray("files");
    Map<String, Written> written = written();
    refuseOthers(written.keySet());
    List<Written> sent = uploads
        ? PendingUploads.read(bare(directory), new ArrayList<>(files.values()), new ArrayList<>(files.keySet()))
        : Collections.emptyList();
    long size = 0;
    for (Map.Entry<Path, Path> file : files.entrySet()) {
      int number = entries.size();
      Written found = uploads ? sent.get(number) : written.get(file.getValue().toUri().getPath());
      checkWritten(file.getKey(), found);
      Path owner = uploads ? new Path(place, Integer.toString(number)) : file.getValue();
      ObjectNode entry = entryOf(owner, file.getKey(), found.size, found.identity);
      if (uploads) {
        entry.set("u", found.upload);
      }
      entries.add(entry);
      size += found.size;
    }
    byte[] record = Driver.JSON.writeValueAsBytes(manifest);
    String name = run + text("record_suffix");
    save(record, new Path(text("attempts"), name));
    checkJobStands();
    ObjectNode message = Driver.JSON.createObjectNode();
    message.put("job_id", text("job_id")).put("task", task).put("attempt", attempt).put("nonce", nonce);
    message.put("record", text("attempts_uri") + "/" + name).put("digest", digestOf(record));
    message.put("length", record.length).put("files", files.size()).put("size", size);
    if (record.length <= job.get("inline_limit").asInt()) {
      message.put("inline", new String(record, StandardCharsets.UTF_8));
    }
    return message.toString();
  }

  private void checkWritten(Path target, Written written) {
    if (written == null) {
      throw new CommitException(
          "the file " + target + " of " + attemptName() + " is gone, or its writer made none; outcome:"
              + " unchanged; next step: find out who deletes below " + directory + "; Spark runs the task again");
    }
  }

  /** Returns an entry of a record in Hadoop's form. */
  private static ObjectNode entryOf(Path file, Path target, long size, String identity) {
    ObjectNode entry = Driver.JSON.createObjectNode();
    entry.put("s", file.toUri().toString()).put("d", target.toUri().toString()).put("z", size);
    return identity == null ? entry : entry.put("e", identity);
  }

  /** Returns every file of the attempt, by its path. */
  private Map<String, Written> written() throws IOException {
    if (!job.get("directories").asBoolean()) {
      return WrittenFiles.beginningWith(bare(directory), directory);
    }
    if (files.isEmpty() && !bare(directory).exists(directory)) {
      return Collections.emptyMap();
    }
    FileSystem fs = directory.getFileSystem(configuration);
    return WrittenFiles.below(fs, directory, new Path(text("setup")), job.path("setup_identity").textValue());
  }

  /** Refuses files that Spark asked no path for, as Parquet's keys: no record names them, so they would be lost. */
  private void refuseOthers(Set<String> written) {
    Set<String> others = new TreeSet<>(written);
    for (Path file : files.values()) {
      others.remove(file.toUri().getPath());
      if (uploads) {
        others.remove(file.suffix(PendingUploads.SUFFIX).toUri().getPath());
      }
    }
    if (others.isEmpty()) {
      return;
    }
    String shown = others.stream().limit(OTHERS_SHOWN).collect(Collectors.joining(", "));
    throw new CommitException(
        "the format wrote files beside those that Spark asked for (" + others.size() + "), which this protocol cannot"
            + " commit: " + shown + (others.size() > OTHERS_SHOWN ? ", …" : "") + "; outcome: unchanged; next step: let"
            + " the format write none (Parquet's keys: parquet.encryption.key.material.store.internally=true), or write"
            + " with spark.sql.sources.commitProtocolClass unset");
  }

  void abort() throws IOException {
    if (uploads) {
      List<Path> records = new ArrayList<>();
      for (Written file : written().values()) {
        if (file.path.getName().endsWith(PendingUploads.SUFFIX)) {
          records.add(file.path);
        }
      }
      PendingUploads.abort(bare(directory), destination, records);
    }
    bare(directory).delete(uploads ? directory.getParent() : directory, true);
  }

  /** Saves a record under a temporary name without its suffix, which readers look for, and renames it. */
  private void save(byte[] record, Path path) throws IOException {
    FileSystem fs = bare(path);
    if (!job.get("directories").asBoolean()) {
      try (OutputStream out = fs.create(path, false)) {
        out.write(record);
      }
      return;
    }
    Path temporary = path.suffix(".tmp");
    try (OutputStream out = fs.create(temporary, false)) {
      out.write(record);
    }
    if (!fs.rename(temporary, path)) {
      throw new IOException("the record " + path + " could not be saved: its temporary file could not be renamed");
    }
  }

  private void checkJobStands() throws IOException {
    Path mark = new Path(text("setup"));
    if (!bare(mark).exists(mark)) {
      throw new CommitException(
          "job " + text("job_id") + " at " + text("destination") + " is over: it was committed, aborted or cleaned up"
              + ", or it lies on a disk of the driver's that this executor does not see; outcome: unchanged; next step:"
              + " stop this task, nothing that it writes can become visible; a local destination must be the same"
              + " directory of the same disk on the driver and on all executors");
    }
  }

  /** Returns a path's file system without checksum files. */
  private FileSystem bare(Path path) throws IOException {
    return bare(path, configuration);
  }

  private static FileSystem bare(Path path, Configuration configuration) throws IOException {
    FileSystem fs = path.getFileSystem(configuration);
    return fs instanceof ChecksumFileSystem ? ((ChecksumFileSystem) fs).getRawFileSystem() : fs;
  }

  private String attemptName() {
    return String.format(Locale.ROOT, text("attempt"), task, attempt);
  }

  private String text(String field) {
    return job.get(field).asText();
  }

  private static String digestOf(byte[] data) {
    try {
      return Driver.hex(MessageDigest.getInstance("SHA-256").digest(data));
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }
}
