package io.github.lakecommitter.spark;

/** A job or a task attempt that could not go on; the message says what failed, what changed, and what to do next. */
public final class CommitException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  CommitException(String message) {
    super(message);
  }

  CommitException(String message, Throwable cause) {
    super(message, cause);
  }
}
