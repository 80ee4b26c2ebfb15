package io.github.lakecommitter.spark;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Calls on threads of their own, for which one waits whoever interrupts the wait: Spark interrupts a task that it kills,
 * and the thread of a query that is cancelled. File systems then refuse what is asked of them.
 */
final class Uninterrupted {
  /** As long as it takes. */
  static final long WITHOUT_BOUND_S = Long.MAX_VALUE;

  private Uninterrupted() {}

  /**
   * What a call returns, or raises.
   *
   * @throws TimeoutException it took longer than `boundSeconds`, and goes on
   */
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
