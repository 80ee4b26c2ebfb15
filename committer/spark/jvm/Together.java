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

/** Calls of a store, which answers many as fast as one. */
final class Together {
  private static final int THREADS = 8;

  private Together() {}

  /** Makes calls many at once; what they returned, in order. An interrupt ends the wait: Spark kills the task. */
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
