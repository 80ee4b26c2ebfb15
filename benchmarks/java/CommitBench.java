import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Stream;

import com.sun.management.OperatingSystemMXBean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitter;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.DirEntry;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.EntryStatus;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.FileEntry;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.TaskManifest;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.impl.ManifestCommitterSupport;
import org.apache.hadoop.fs.statistics.IOStatisticsSnapshot;
import org.apache.hadoop.mapreduce.task.JobContextImpl;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;

/**
 * Hadoop's committers, driven line by line: one virtual machine that stays warm between rounds.
 *
 * <p>Each line of standard input is {@code committer tasks files directories latency_ms threads root no_op}; each line
 * of standard output is one job commit as JSON. Tasks are prepared without latency, so the commit alone is measured.
 * The committer "task" is the manifest committer's task side instead: setup and commit of one task, whose files appear
 * for free in between.
 */
public final class CommitBench {

  private static int number;

  private CommitBench() {
  }

  public static void main(String[] args) throws Exception {
    try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.trim().split(" ");
        System.out.println(new Job(words).measure());
        System.out.flush();
      }
    }
  }

  /** One job of one committer. */
  private static final class Job {
    private final String committer;
    private final int tasks;
    private final int files;
    private final int directories;
    private final long latency;
    private final File destination;
    private final boolean noOp;
    private final Configuration conf = new Configuration();
    private final JobID id = new JobID("bench", ++number);
    private final org.apache.hadoop.fs.Path out;

    Job(String[] words) {
      committer = words[0];
      tasks = Integer.parseInt(words[1]);
      files = Integer.parseInt(words[2]);
      directories = Integer.parseInt(words[3]);
      latency = Long.parseLong(words[4]);
      destination = new File(words[6], "java-" + number);
      noOp = Boolean.parseBoolean(words[7]);
      out = new org.apache.hadoop.fs.Path("slow://" + destination.getAbsolutePath());
      conf.set("fs.slow.impl", SlowFileSystem.class.getName());
      conf.setInt("mapreduce.manifest.committer.io.threads", Integer.parseInt(words[5]));
      conf.setInt("mapreduce.fileoutputcommitter.algorithm.version", 1);
      conf.setInt("mapreduce.job.application.attempt.id", 0);
    }

    String measure() throws Exception {
      PathOutputCommitter driver = committer(context(0));
      JobContextImpl job = new JobContextImpl(conf, id);
      SlowFileSystem.latency = 0;
      SlowFileSystem.noOp = false;
      driver.setupJob(job);
      boolean oneTask = "task".equals(committer);
      for (int task = 0; task < (oneTask ? 0 : tasks); task++) {
        if (noOp) {
          describe((ManifestCommitter) driver, task);
        } else {
          write(task);
        }
      }
      System.gc();
      SlowFileSystem.latency = latency;
      SlowFileSystem.noOp = noOp;
      SlowFileSystem.CALLS.clear();
      resetPeak();
      long cpu = cpu();
      long started = System.nanoTime();
      if (oneTask) {
        write(0);
      } else {
        driver.commitJob(job);
      }
      double wall = (System.nanoTime() - started) / 1e9;
      double used = (cpu() - cpu) / 1e9;
      long peak = peak();
      Map<String, Long> calls = new TreeMap<>();
      SlowFileSystem.CALLS.forEach((name, count) -> calls.put(name, count.sum()));
      SlowFileSystem.latency = 0;
      if (!noOp && !oneTask) {
        check();
      }
      delete(destination.toPath());
      StringBuilder text = new StringBuilder();
      calls.forEach((name, count) -> text.append(text.length() == 0 ? "" : ", ").append('"').append(name)
          .append("\": ").append(count));
      return String.format(java.util.Locale.ROOT,
          "{\"wall_s\": %.6f, \"cpu_s\": %.6f, \"peak_rss_bytes\": %d, \"calls\": {%s}}", wall, used, peak, text);
    }

    private PathOutputCommitter committer(TaskAttemptContext context) throws IOException {
      return "v1".equals(committer) ? new FileOutputCommitter(out, context)
          : new ManifestCommitter(out, context);
    }

    private TaskAttemptContext context(int task) {
      return new TaskAttemptContextImpl(conf, new TaskAttemptID(id.getJtIdentifier(), id.getId(), TaskType.MAP,
          task, 0));
    }

    private String partition(int task, int file) {
      return "p=" + (task * files + file) % directories;
    }

    private static String name(int task, int file) {
      return String.format("part-%05d-%05d.parquet", task, file);
    }

    private void write(int task) throws IOException {
      TaskAttemptContext context = context(task);
      PathOutputCommitter attempt = committer(context);
      attempt.setupTask(context);
      Path work = Path.of(attempt.getWorkPath().toUri().getPath());
      for (int file = 0; file < files; file++) {
        Path directory = work.resolve(partition(task, file));
        Files.createDirectories(directory);
        Files.createFile(directory.resolve(name(task, file)));
      }
      if (attempt.needsTaskCommit(context)) {
        attempt.commitTask(context);
      }
    }

    /** Saves the manifest of a task whose files were never written. */
    private void describe(ManifestCommitter driver, int task) throws IOException {
      TaskAttemptContext context = context(task);
      org.apache.hadoop.fs.Path attempt = driver.getTaskAttemptPath(context);
      TaskManifest manifest = new TaskManifest();
      manifest.setJobId(id.toString());
      manifest.setTaskID(context.getTaskAttemptID().getTaskID().toString());
      manifest.setTaskAttemptID(context.getTaskAttemptID().toString());
      manifest.setTaskAttemptDir(attempt.toUri().toString());
      Map<String, Boolean> seen = new TreeMap<>();
      for (int file = 0; file < files; file++) {
        String partition = partition(task, file);
        org.apache.hadoop.fs.Path directory = new org.apache.hadoop.fs.Path(out, partition);
        if (seen.put(partition, true) == null) {
          manifest.addDirectory(DirEntry.dirEntry(directory, EntryStatus.not_found, 1));
        }
        manifest.addFileToCommit(new FileEntry(new org.apache.hadoop.fs.Path(attempt, partition + "/" + name(task,
            file)), new org.apache.hadoop.fs.Path(directory, name(task, file)), 1000 + file, "1:" + file));
      }
      // As every manifest that a task commits carries it.
      manifest.setIOStatistics(new IOStatisticsSnapshot(
          ManifestCommitterSupport.createIOStatisticsStore().build()));
      manifest.save(out.getFileSystem(conf), driver.getTaskManifestPath(context), true);
    }

    private void check() throws IOException {
      try (Stream<Path> found = Files.walk(destination.toPath())) {
        long count = found.filter(path -> path.getFileName().toString().startsWith("part-")).count();
        if (count != (long) tasks * files) {
          throw new IllegalStateException(count + " files in place of " + (long) tasks * files);
        }
      }
    }
  }

  private static OperatingSystemMXBean system() {
    return (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
  }

  private static long cpu() {
    return system().getProcessCpuTime();
  }

  /** Lets the kernel forget the largest resident set so far; see proc(5), clear_refs. */
  private static void resetPeak() throws IOException {
    Files.writeString(Path.of("/proc/self/clear_refs"), "5");
  }

  private static long peak() throws IOException {
    try (Stream<String> lines = Files.lines(Path.of("/proc/self/status"))) {
      return lines.filter(line -> line.startsWith("VmHWM:"))
          .mapToLong(line -> 1024 * Long.parseLong(line.replaceAll("\\D", ""))).findFirst().orElse(-1);
    }
  }

  private static void delete(Path root) throws IOException {
    if (!Files.exists(root)) {
      return;
    }
    try (Stream<Path> found = Files.walk(root)) {
      for (Path path : (Iterable<Path>) found.sorted(Comparator.reverseOrder())::iterator) {
        Files.delete(path);
      }
    }
  }

  /** A local disk far away: each call from outside waits, and is counted; what a call calls itself is free. */
  public static final class SlowFileSystem extends RawLocalFileSystem {
    static final Map<String, LongAdder> CALLS = new ConcurrentHashMap<>();
    static volatile long latency;
    static volatile boolean noOp;
    private static final ThreadLocal<Boolean> INSIDE = ThreadLocal.withInitial(() -> false);

    private interface Call<T> {
      T run() throws IOException;
    }

    private static <T> T charged(String name, Call<T> call) throws IOException {
      if (INSIDE.get()) {
        return call.run();
      }
      CALLS.computeIfAbsent(name, key -> new LongAdder()).increment();
      if (latency > 0) {
        try {
          Thread.sleep(latency);
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          throw new java.io.InterruptedIOException();
        }
      }
      INSIDE.set(true);
      try {
        return call.run();
      } finally {
        INSIDE.set(false);
      }
    }

    @Override
    public java.net.URI getUri() {
      return java.net.URI.create("slow:///");
    }

    @Override
    public String getScheme() {
      return "slow";
    }

    @Override
    public boolean rename(org.apache.hadoop.fs.Path source, org.apache.hadoop.fs.Path target) throws IOException {
      return charged("rename", () -> noOp && !source.toString().contains("/manifests/")
          || super.rename(source, target));
    }

    @Override
    public boolean mkdirs(org.apache.hadoop.fs.Path path, FsPermission permission) throws IOException {
      return charged("mkdirs", () -> noOp || super.mkdirs(path, permission));
    }

    @Override
    public boolean mkdirs(org.apache.hadoop.fs.Path path) throws IOException {
      return charged("mkdirs", () -> noOp || super.mkdirs(path));
    }

    @Override
    public FileStatus getFileStatus(org.apache.hadoop.fs.Path path) throws IOException {
      return charged("status", () -> super.getFileStatus(path));
    }

    @Override
    public FileStatus[] listStatus(org.apache.hadoop.fs.Path path) throws IOException {
      return charged("list", () -> super.listStatus(path));
    }

    @Override
    public boolean delete(org.apache.hadoop.fs.Path path, boolean recursive) throws IOException {
      return charged("delete", () -> super.delete(path, recursive));
    }

    @Override
    public FSDataInputStream open(org.apache.hadoop.fs.Path path, int size) throws IOException {
      return charged("open", () -> super.open(path, size));
    }

    @Override
    public FSDataOutputStream create(org.apache.hadoop.fs.Path path, FsPermission permission, boolean overwrite,
        int size, short replication, long block, org.apache.hadoop.util.Progressable progress) throws IOException {
      return charged("create", () -> super.create(path, permission, overwrite, size, replication, block, progress));
    }

    @Override
    public FSDataOutputStream create(org.apache.hadoop.fs.Path path, boolean overwrite, int size, short replication,
        long block, org.apache.hadoop.util.Progressable progress) throws IOException {
      return charged("create", () -> super.create(path, overwrite, size, replication, block, progress));
    }

    /** Without Hadoop's native library the inherited one starts a process for each file. */
    @Override
    public void setPermission(org.apache.hadoop.fs.Path path, FsPermission permission) {
    }
  }
}
