package io.github.lakecommitter.spark;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Job side in a new Python process per request, for drivers other than PySpark's. */
final class PythonProcess implements Driver.JobSide {
  /** Setting that names the interpreter. */
  static final String SETTING = "spark.committer.python";

  private static final Logger LOG = LoggerFactory.getLogger(PythonProcess.class);
  private static final int LINES_KEPT = 5;
  /** Prefixes of Python's log lines that a user should see. */
  private static final List<String> WARNINGS = Arrays.asList("WARNING ", "ERROR ", "CRITICAL ");

  private final String python;

  PythonProcess(String python) {
    this.python = python;
  }

  @Override
  public String call(String operation, String request) {
    Process process;
    try {
      // Without -P, Python would search modules in the JVM's working directory first.
      process = new ProcessBuilder(python, "-P", "-m", "committer.spark.job_side", operation).start();
    } catch (IOException error) {
      throw new CommitException(
          "the interpreter " + python + " of " + SETTING + " cannot be started: " + error.getMessage()
              + "; outcome: unchanged; next step: name one that is there, with `pip install 'lake-committer[spark]'`",
          error);
    }
    ArrayDeque<String> said = new ArrayDeque<>();
    Thread listener = new Thread(() -> listen(process, said), "committer-python-log");
    listener.setDaemon(true);
    listener.start();
    String answer;
    int code;
    try {
      try (OutputStream in = process.getOutputStream()) {
        in.write(request.getBytes(StandardCharsets.UTF_8));
      } catch (IOException error) {
        // Python ended without reading all; its exit code and output tell why.
        LOG.debug("{} did not read its request", python, error);
      }
      answer = Driver.textOf(process.getInputStream());
      code = process.waitFor();
      listener.join();
    } catch (IOException error) {
      throw new IllegalStateException(python + " gave no answer: " + error.getMessage(), error);
    } catch (InterruptedException error) {
      // No other code knows this thread, which Driver created for the call.
      throw new IllegalStateException("the wait for " + python + " was interrupted; it goes on", error);
    }
    if (code != 0) {
      throw new IllegalStateException(python + " ended with exit code " + code + ": " + String.join(" | ", said));
    }
    return answer;
  }

  private static void listen(Process process, ArrayDeque<String> said) {
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        if (WARNINGS.stream().anyMatch(line::startsWith)) {
          LOG.warn("{}", line);
        } else {
          LOG.info("{}", line);
        }
        said.addLast(line);
        if (said.size() > LINES_KEPT) {
          said.removeFirst();
        }
      }
    } catch (IOException error) {
      LOG.debug("the log of the Python process ended", error);
    }
  }
}
