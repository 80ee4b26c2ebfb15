package io.github.lakecommitter.spark;

/** Failure of a job or task attempt; the message names the cause, the outcome and the next step. */
public final class CommitException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  CommitException(String message) {
    super(message);
  }

  CommitException(String message, Throwable cause) {
    super(message, cause);
  }
}
