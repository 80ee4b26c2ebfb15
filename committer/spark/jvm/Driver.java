package io.github.lakecommitter.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import org.apache.spark.SparkEnv;

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

  private static JobSide process(String destination) {
    SparkEnv environment = SparkEnv.get();
    String python = environment == null ? "" : environment.conf().get(PythonProcess.SETTING, "");
    if (python.isEmpty()) {
      throw new CommitException(
          "no Python process commits the jobs of this JVM, so the write to " + destination + " was not begun"
              + "; outcome: unchanged; next step: in a PySpark driver call committer.spark.configure(builder); in any"
              + " other set " + PythonProcess.SETTING + " to an interpreter that has lake-committer[spark]");
    }
    return new PythonProcess(python);
  }

  /** Asks Python; what it answers, or its error as an exception. */
  static JsonNode ask(String operation, ObjectNode request, String jobId, String destination) {
    JobSide side = jobSide == null ? process(destination) : jobSide;
    String answer;
    try {
      answer = side.call(operation, request.put("release", release()).toString());
    } catch (CommitException error) {
      throw error;
    } catch (RuntimeException error) {
      boolean first = operation.equals("setup");
      throw new CommitException(
          "Python did not answer when asked to " + operation + " job " + jobId + " at " + destination + ": "
              + error.getMessage() + "; outcome: " + (operation.equals("commit") ? "unknown" : "unchanged")
              + "; next step: " + (first ? "put right what it says (a module that is missing: `pip install"
              + " 'lake-committer[spark]'` for that interpreter); " : "") + "`committer jobs " + destination
              + "` shows how far the job is, and what ends it",
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
