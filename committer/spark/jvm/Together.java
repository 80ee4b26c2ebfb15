package io.github.lakecommitter.spark;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Runs store calls concurrently. */
final class Together {
  private static final int THREADS = 8;

  private Together() {}

  /** Returns the calls' results in order. An interrupt ends the wait, because Spark kills the task. */
  static <T> List<T> call(List<Callable<T>> calls) throws IOException {
    ExecutorService threads = Executors.newFixedThreadPool(Math.max(1, Math.min(THREADS, calls.size())));
    try {
      List<T> done = new ArrayList<>();
      for (Future<T> one : threads.invokeAll(calls)) {
        done.add(one.get());
      }
      return done;
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw (IOException) new InterruptedIOException("the task was interrupted").initCause(error);
    } catch (ExecutionException error) {
      if (error.getCause() instanceof IOException) {
        throw (IOException) error.getCause();
      }
      if (error.getCause() instanceof RuntimeException) {
        throw (RuntimeException) error.getCause();
      }
      throw new IOException(error.getCause());
    } finally {
      threads.shutdownNow();
    }
  }
}
