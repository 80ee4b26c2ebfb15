package io.github.lakecommitter.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/** What a session says of stores, and of commits, for Python: in memory or by a pipe, never in what goes to tasks. */
final class StoreSettings {
  /** Keys of these prefixes, where the session or the write gave them, are the job's choices. */
  private static final List<String> CHOICES =
      List.of("committer.", "mapreduce.manifest.committer.", "mapreduce.fileoutputcommitter.");
  /** Keys of these say how to reach a store. Their values may be secrets. */
  private static final List<String> STORES = List.of("fs.", "dfs.", "hadoop.security.", "hadoop.rpc.");

  private StoreSettings() {}

  /** Adds both to a question. */
  static void add(Configuration configuration, ObjectNode request) {
    add(configuration, CHOICES, request.putObject("options"));
    add(configuration, STORES, request.putObject("storage"));
  }

  private static void add(Configuration configuration, List<String> prefixes, ObjectNode found) {
    for (Map.Entry<String, String> entry : configuration) {
      String key = entry.getKey();
      if (prefixes.stream().anyMatch(key::startsWith) && isGiven(configuration, key)) {
        found.put(key, configuration.get(key));
      }
    }
  }

  /** Whether a user gave a value; Hadoop's own defaults are no choice. */
  private static boolean isGiven(Configuration configuration, String key) {
    String[] sources = configuration.getPropertySources(key);
    return sources == null || sources.length == 0 || !sources[sources.length - 1].endsWith("-default.xml");
  }
}
