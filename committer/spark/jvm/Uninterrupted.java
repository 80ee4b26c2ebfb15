package io.github.lakecommitter.spark;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs calls on their own threads and waits without interruption. Spark interrupts a task that it kills and the thread
 * of a cancelled query, and file systems refuse calls of interrupted threads.
 */
final class Uninterrupted {
  /** No limit. */
  static final long WITHOUT_BOUND_S = Long.MAX_VALUE;

  private Uninterrupted() {}

  /** Returns or raises what the call does; throws TimeoutException after the bound, while the call continues. */
  static <T> T call(String thread, long boundSeconds, Callable<T> call) throws Exception {
    FutureTask<T> task = new FutureTask<>(call);
    Thread runner = new Thread(task, thread);
    runner.setDaemon(true);
    runner.start();
    long bound = TimeUnit.SECONDS.toNanos(boundSeconds);
    long began = System.nanoTime();
    boolean interrupted = false;
    try {
      while (true) {
        try {
          return task.get(bound - (System.nanoTime() - began), TimeUnit.NANOSECONDS);
        } catch (InterruptedException error) {
          interrupted = true;
        }
      }
    } catch (ExecutionException error) {
      if (error.getCause() instanceof Exception) {
        throw (Exception) error.getCause();
      }
      throw error;
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
