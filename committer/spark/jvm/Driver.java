package io.github.lakecommitter.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;

/** The way from Spark's driver to the Python process that holds the job side of the commit protocol. */
public final class Driver {
  /** What Python implements; both texts are JSON objects. */
  public interface JobSide {
    String call(String operation, String request);
  }

  static final ObjectMapper JSON = new ObjectMapper();

  private static volatile JobSide jobSide;

  private Driver() {}

  /** Names the Python process that sets up, commits and aborts the jobs of this JVM. The latest one counts. */
  public static void register(JobSide side) {
    jobSide = side;
  }

  /** The digest of the sources that this jar was made of. */
  public static String release() {
    try (InputStream text = Driver.class.getResourceAsStream("release")) {
      return text == null ? "" : new String(text.readAllBytes(), StandardCharsets.US_ASCII).trim();
    } catch (IOException error) {
      return "";
    }
  }

  /** Asks Python; what it answers, or its error as an exception. */
  static JsonNode ask(String operation, ObjectNode request, String jobId, String destination) {
    JobSide side = jobSide;
    if (side == null) {
      throw new CommitException(
          "no Python process commits the jobs of this JVM, so the write to " + destination + " was not begun"
              + "; outcome: unchanged; next step: start the session from Python with committer.spark.configure(builder)"
              + ", or leave spark.sql.sources.commitProtocolClass out; drivers without Python are not served yet");
    }
    String answer;
    try {
      answer = side.call(operation, request.put("release", release()).toString());
    } catch (RuntimeException error) {
      String known = operation.equals("commit") ? "unknown" : "unchanged";
      throw new CommitException(
          "the Python process did not answer when asked to " + operation + " job " + jobId + " at " + destination
              + "; outcome: " + known + "; next step: `committer jobs " + destination + "` shows how far the job is, and"
              + " what ends it",
          error);
    }
    try {
      JsonNode read = JSON.readTree(answer);
      if (read.hasNonNull("error")) {
        throw new CommitException(read.get("error").asText());
      }
      return read;
    } catch (JsonProcessingException error) {
      throw new CommitException("the Python process gave no JSON: " + answer, error);
    }
  }
}
