package io.github.lakecommitter.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.github.lakecommitter.spark.WrittenFiles.Written;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.BBUploadHandle;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.MultipartUploader;
import org.apache.hadoop.fs.Path;

/**
 * Uncompleted uploads to S3: S3A sends a file below its magic directory to its destination, keeps the upload open, and
 * leaves an empty marker and a record of the upload where Spark wrote.
 *
 * <p>Source of the names: {@code MagicCommitPaths}, {@code SinglePendingCommit} of Hadoop 3.4 and 3.5.
 */
final class PendingUploads {
  static final String SUFFIX = ".pending";
  private static final String CAPABILITY = "fs.s3a.capability.magic.committer";
  private static final String IN_MEMORY = "fs.s3a.committer.magic.track.commits.in.memory.enabled";
  private static final Pattern MD5 = Pattern.compile("[0-9a-fA-F]{32}");

  private PendingUploads() {}

  /** Refuses a file system without magic directories, or one that records uploads only in memory. */
  static void check(FileSystem fs, Path destination) throws IOException {
    if (!fs.hasPathCapability(destination, CAPABILITY)) {
      throw new CommitException(
          "the JVM writes to " + destination + " by " + fs.getClass().getName() + ", which has no magic directories;"
              + " outcome: unchanged; next step: use S3A (hadoop-aws), with fs.s3a.committer.magic.enabled, or write"
              + " with committer.spark.write");
    }
    if (!namesJobs(fs)) {
      throw new CommitException(
          "the JVM writes to " + destination + " by a hadoop-aws of before 3.4, which knows no magic directories of one"
              + " job; outcome: unchanged; next step: use hadoop-aws 3.4 or later with its Hadoop (Spark 4 brings it), or"
              + " write with committer.spark.foreach_partition");
    }
    if (fs.getConf().getBoolean(IN_MEMORY, false)) {
      throw new CommitException(
          IN_MEMORY + " is on, so that only Hadoop's own committer learns of the uploads to " + destination
              + "; outcome: unchanged; next step: set spark.hadoop." + IN_MEMORY + "=false");
    }
  }

  /** Whether S3A takes `__magic_job-ID` for a magic directory (HADOOP-18797); true for what cannot be asked. */
  private static boolean namesJobs(FileSystem fs) {
    try {
      Class<?> paths = Class.forName(
          "org.apache.hadoop.fs.s3a.commit.MagicCommitPaths", true, fs.getClass().getClassLoader());
      Object magic = paths.getMethod("isMagicPath", List.class).invoke(null, Arrays.asList("__magic_job-1", "file"));
      return (Boolean) magic;
    } catch (ReflectiveOperationException error) {
      return true;
    }
  }

  /** Reads S3A's records of files, concurrently; `targets` are the files' destinations. */
  static List<Written> read(FileSystem fs, List<Path> files, List<Path> targets) throws IOException {
    List<Callable<Written>> calls = new ArrayList<>();
    for (int number = 0; number < files.size(); number++) {
      Path file = files.get(number);
      Path target = targets.get(number);
      calls.add(() -> read(fs, file, target));
    }
    return Together.call(calls);
  }

  private static Written read(FileSystem fs, Path file, Path target) throws IOException {
    JsonNode pending;
    try {
      pending = recorded(fs, file.suffix(SUFFIX));
    } catch (FileNotFoundException error) {
      throw new CommitException(
          "nothing tells of the upload of " + target + ": its writer made none, or what was below "
              + file.getParent() + " was deleted; outcome: unchanged; next step: find out who deletes there; Spark runs"
              + " the task again",
          error);
    }
    String key = target.toUri().getPath().substring(1);
    String bucket = target.toUri().getAuthority();
    if (!pending.path("destinationKey").asText().equals(key) || !pending.path("bucket").asText().equals(bucket)) {
      throw new CommitException(
          "S3A sent the file " + target + " to " + pending.path("bucket").asText() + "/"
              + pending.path("destinationKey").asText()
              + "; outcome: unchanged; next step: report the query that did it");
    }
    ObjectNode entry = Driver.JSON.createObjectNode().put("id", pending.path("uploadId").asText());
    ArrayNode etags = entry.putArray("etags");
    List<String> checksums = new ArrayList<>();
    String algorithm = "";
    for (JsonNode part : pending.path("etags")) {
      // Before Hadoop 3.4.2 a text.
      String etag = part.isTextual() ? part.asText() : part.path("etag").asText();
      etags.add(etag.replace("\"", ""));
      if (part.hasNonNull("checksum")) {
        checksums.add(part.get("checksum").asText());
        algorithm = part.path("checksumAlgorithm").asText();
      }
    }
    if (!checksums.isEmpty() && checksums.size() == etags.size()) {
      checksums.forEach(entry.putArray("checksums")::add);
      entry.put("algorithm", algorithm);
    }
    return new Written(file, pending.path("length").asLong(), composite(etags), entry);
  }

  /** Aborts the uploads in these records; harmless for a completed or aborted one. */
  static void abort(FileSystem fs, Path destination, Collection<Path> records) throws IOException {
    if (records.isEmpty()) {
      return;
    }
    try (MultipartUploader uploader = fs.createMultipartUploader(destination).build()) {
      List<Callable<Object>> calls = new ArrayList<>();
      for (Path record : records) {
        calls.add(() -> {
          JsonNode pending = recorded(fs, record);
          byte[] id = pending.path("uploadId").asText().getBytes(StandardCharsets.UTF_8);
          Path target = new Path(destination, "/" + pending.path("destinationKey").asText());
          return uploader.abort(BBUploadHandle.from(ByteBuffer.wrap(id)), target).get();
        });
      }
      Together.call(calls);
    }
  }

  private static JsonNode recorded(FileSystem fs, Path record) throws IOException {
    try (InputStream in = fs.open(record)) {
      return Driver.JSON.readTree(in);
    }
  }

  /** S3's etag of a file with these parts: the MD5 of their MD5s, and their number; null if an etag is no MD5. */
  private static String composite(ArrayNode etags) {
    try {
      MessageDigest digest = MessageDigest.getInstance("MD5");
      for (JsonNode etag : etags) {
        if (!MD5.matcher(etag.asText()).matches()) {
          return null;
        }
        for (int place = 0; place < etag.asText().length(); place += 2) {
          digest.update((byte) Integer.parseInt(etag.asText().substring(place, place + 2), 16));
        }
      }
      return Driver.hex(digest.digest()) + "-" + etags.size();
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }
}
