package io.github.lakecommitter.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** What a session says of stores, and of commits, for Python: in memory or by a pipe, never in what goes to tasks. */
final class StoreSettings {
  /** Keys of these prefixes, where the session or the write gave them, are the job's choices. */
  private static final List<String> CHOICES =
      List.of("committer.", "mapreduce.manifest.committer.", "mapreduce.fileoutputcommitter.");
  /** Keys of these say how to reach a store. Their values may be secrets. */
  private static final List<String> STORES = List.of("fs.", "dfs.", "hadoop.security.", "hadoop.rpc.");
  /** Of which the ones that begin so are for paths of these schemes only. */
  private static final Map<String, Set<String>> OF_SCHEMES =
      Map.of("fs.s3a.", Set.of("s3", "s3a"), "fs.azure.", Set.of("abfs", "abfss"), "fs.gs.", Set.of("gs"));
  /** Choices of a commit, wherever it goes. */
  private static final String OF_COMMITTERS = "fs.s3a.committer.";

  private StoreSettings() {}

  /** Adds both to a question about a job at a destination. */
  static void add(Configuration configuration, Path destination, ObjectNode request) {
    String scheme = destination.toUri().getScheme();
    add(configuration, key -> beginsWith(CHOICES, key), request.putObject("options"));
    add(configuration, key -> beginsWith(STORES, key) && bearsOn(scheme, key), request.putObject("storage"));
  }

  private static void add(Configuration configuration, Predicate<String> wanted, ObjectNode found) {
    for (Map.Entry<String, String> entry : configuration) {
      String key = entry.getKey();
      if (wanted.test(key) && isGiven(configuration, key)) {
        found.put(key, configuration.get(key));
      }
    }
  }

  private static boolean beginsWith(List<String> prefixes, String key) {
    return prefixes.stream().anyMatch(key::startsWith);
  }

  /** Another store's secrets are none of this job's business. */
  private static boolean bearsOn(String scheme, String key) {
    return key.startsWith(OF_COMMITTERS)
        || OF_SCHEMES.entrySet().stream().noneMatch(of -> key.startsWith(of.getKey()) && !of.getValue().contains(scheme));
  }

  /** Whether a user gave a value; Hadoop's own defaults are no choice. */
  private static boolean isGiven(Configuration configuration, String key) {
    String[] sources = configuration.getPropertySources(key);
    return sources == null || sources.length == 0 || !sources[sources.length - 1].endsWith("-default.xml");
  }
}
