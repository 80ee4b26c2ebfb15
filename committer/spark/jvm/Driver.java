package io.github.lakecommitter.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Locale;
import java.util.zip.Deflater;
import java.util.zip.DeflaterOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkEnv;
import org.apache.spark.package$;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Connection from Spark's driver to the Python process with the job side of the commit protocol. */
public final class Driver {
  /** Implemented by Python. Both texts are JSON objects; a long request is packed, and an answer names its job. */
  public interface JobSide {
    String call(String operation, String request);
  }

  static final ObjectMapper JSON = new ObjectMapper();

  /** Length in characters from which a request is packed. */
  private static final int LONG = 1 << 16;

  private static final Logger LOG = LoggerFactory.getLogger(Driver.class);

  private static volatile JobSide jobSide;

  private Driver() {}

  /** Sets the Python process that sets up, commits and aborts this JVM's jobs; the latest call wins. */
  public static void register(JobSide side) {
    jobSide = side;
  }

  /** Writes a line to the log of Spark's driver. */
  public static void note(String line) {
    LOG.info("{}", line);
  }

  /** Digest of this jar's sources. */
  public static String release() {
    try (InputStream text = Driver.class.getResourceAsStream("release")) {
      return text == null ? "" : textOf(text).trim();
    } catch (IOException error) {
      return "";
    }
  }

  /** Version of the running Spark. */
  public static String spark() {
    return package$.MODULE$.SPARK_VERSION();
  }

  /** Names of the secrets in credential files for the place's store, separated by commas. */
  public static String credentials(Configuration configuration, Path place) {
    return String.join(", ", StoreSettings.credentials(configuration, place).keySet());
  }

  /** Reads UTF-8 to the end. */
  static String textOf(InputStream in) throws IOException {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    byte[] some = new byte[8192];
    for (int length = in.read(some); length >= 0; length = in.read(some)) {
      all.write(some, 0, length);
    }
    return new String(all.toByteArray(), StandardCharsets.UTF_8);
  }

  /** Formats bytes as hexadecimal digits. */
  static String hex(byte[] bytes) {
    return String.format(Locale.ROOT, "%0" + 2 * bytes.length + "x", new BigInteger(1, bytes));
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

  /** Sends a request to Python; returns its answer, or throws its error or that the answer is not valid. */
  static JsonNode ask(String operation, ObjectNode request, String jobId, String destination) {
    JobSide side = jobSide == null ? process(destination) : jobSide;
    String answer;
    try {
      request.put("release", release()).put("spark", spark());
      String question = side instanceof PythonProcess ? request.toString() : packed(request.toString());
      // A commit that has begun continues, and its answer counts. On this thread py4j would call Python's main thread,
      // which Ctrl-C interrupts.
      answer = Uninterrupted.call(
          "committer-job-side", Uninterrupted.WITHOUT_BOUND_S, () -> side.call(operation, question));
    } catch (CommitException error) {
      throw error;
    } catch (Exception error) {
      throw unanswered(operation, jobId, destination, error.getMessage(), error);
    }
    JsonNode read;
    try {
      read = JSON.readTree(answer);
    } catch (JsonProcessingException | IllegalArgumentException error) {
      throw unanswered(operation, jobId, destination, "this is no JSON: " + answer, error);
    }
    if (read.hasNonNull("error")) {
      throw new CommitException(read.get("error").asText());
    }
    if (!read.path(answerOf(operation)).asText().equals(jobId) || isSetup(operation) && !read.hasNonNull("spec")) {
      throw unanswered(operation, jobId, destination, "this is not its answer: '" + answer + "'", null);
    }
    return read;
  }

  /**
   * Compresses a long request. py4j escapes quotes and line ends one by one, which for 100,000 messages took longer
   * than the commit itself.
   */
  private static String packed(String question) {
    if (question.length() < LONG) {
      return question;
    }
    ByteArrayOutputStream packed = new ByteArrayOutputStream();
    try (OutputStream out = new DeflaterOutputStream(packed, new Deflater(Deflater.BEST_SPEED))) {
      out.write(question.getBytes(StandardCharsets.UTF_8));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return Base64.getEncoder().encodeToString(packed.toByteArray());
  }

  /** Returns the field of an answer that holds the job's id. */
  private static String answerOf(String operation) {
    return isSetup(operation) ? "job_id" : operation.equals("commit") ? "committed" : "aborted";
  }

  private static boolean isSetup(String operation) {
    return operation.equals("setup");
  }

  private static CommitException unanswered(
      String operation, String jobId, String destination, String why, Throwable cause) {
    String look = "`committer jobs " + destination + "` shows how far the job is";
    return new CommitException(
        "Python did not answer when asked to " + (isSetup(operation) ? "set up" : operation) + " job " + jobId + " at " + destination + ": " + why
            + (isSetup(operation)
                ? "; outcome: unchanged; next step: put right what it says (a module that is missing: `pip install"
                    + " 'lake-committer[spark]'` for that interpreter, Python 3.11 or later); " + look + ", and what ends it"
                : "; outcome: unknown; next step: " + look + "; if it is committing, `committer recover " + destination
                    + " " + jobId + "` finishes it; if there is no such job any more, look at the data"),
        cause);
  }
}
