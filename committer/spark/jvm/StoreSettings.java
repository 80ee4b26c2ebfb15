package io.github.lakecommitter.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.ProviderUtils;
import org.apache.hadoop.security.alias.CredentialProvider;
import org.apache.hadoop.security.alias.CredentialProviderFactory;

/** Settings of a session for stores and commits, sent to Python in memory or through a pipe, never to tasks. */
final class StoreSettings {
  private static final String S3A = "fs.s3a.";
  private static final String CREDENTIAL_FILES = "hadoop.security.credential.provider.path";
  private static final String PARQUET_COMMITTER = "spark.sql.parquet.output.committer.class";
  private static final String ANY_COMMITTER = "spark.sql.sources.outputCommitterClass";
  private static final String PARQUETS_OWN = "org.apache.parquet.hadoop.ParquetOutputCommitter";
  private static final String S3A_FILES = "security.credential.provider.path";
  /** Prefixes of commit options that the session or the write may set. */
  private static final List<String> CHOICES =
      Arrays.asList("committer.", "mapreduce.manifest.committer.", "mapreduce.fileoutputcommitter.");
  /** Prefixes of keys for reaching a store; their values may be secrets. */
  private static final List<String> STORES = Arrays.asList("fs.", "dfs.", "hadoop.security.", "hadoop.rpc.");
  /** Prefixes of keys that concern only paths of these schemes. */
  private static final Map<String, List<String>> OF_SCHEMES = new TreeMap<>();

  static {
    OF_SCHEMES.put(S3A, Arrays.asList("s3", "s3a"));
    OF_SCHEMES.put("fs.azure.", Arrays.asList("abfs", "abfss"));
    OF_SCHEMES.put("fs.gs.", Arrays.asList("gs"));
  }

  /** Prefix of commit options for any store. */
  private static final String OF_COMMITTERS = "fs.s3a.committer.";

  /** Hadoop's name for the source of a value that was set after the configuration was made. */
  private static final String SET_LATER = "programmatically";

  private StoreSettings() {}

  /** Adds both to a request about a job at a destination. */
  static void add(Configuration configuration, Path destination, ObjectNode request) {
    String scheme = destination.toUri().getScheme();
    ObjectNode options = request.putObject("options");
    ObjectNode storage = request.putObject("storage");
    add(configuration, key -> beginsWith(CHOICES, key), options);
    add(configuration, key -> beginsWith(STORES, key) && bearsOn(scheme, key), storage);
    credentials(configuration, destination).forEach(storage::put);
    addOfWrite(configuration, options, request.putArray("of_write"));
    addOfWrite(configuration, storage, (ArrayNode) request.get("of_write"));
  }

  /** Adds the session's settings that name a Hadoop output committer: Spark calls it only in its own protocol. */
  static void addOutputCommitters(Configuration configuration, ObjectNode found) {
    String parquet = configuration.get(PARQUET_COMMITTER);
    String any = configuration.get(ANY_COMMITTER);
    if (parquet != null && !parquet.equals(PARQUETS_OWN)) {
      found.put(PARQUET_COMMITTER, parquet);
    }
    // Spark itself copies the class of the Parquet key to this key.
    if (any != null && !any.equals(PARQUETS_OWN) && !any.equals(parquet)) {
      found.put(ANY_COMMITTER, any);
    }
  }

  /** Adds the keys that the write gave, or that were set in the running session; not those of spark.hadoop.*. */
  private static void addOfWrite(Configuration configuration, ObjectNode found, ArrayNode keys) {
    found.fieldNames().forEachRemaining(key -> {
      String[] sources = configuration.getPropertySources(key);
      if (sources != null && sources.length > 0 && sources[sources.length - 1].equals(SET_LATER)) {
        keys.add(key);
      }
    });
  }

  private static void add(Configuration configuration, Predicate<String> wanted, ObjectNode found) {
    for (Map.Entry<String, String> entry : configuration) {
      String key = entry.getKey();
      if (wanted.test(key) && isGiven(configuration, key)) {
        found.put(key, configuration.get(key));
      }
    }
  }

  /** Returns the secrets of credential files for the destination's store; Hadoop's own client prefers them. */
  static Map<String, String> credentials(Configuration configuration, Path destination) {
    String scheme = destination.toUri().getScheme();
    List<String> prefixes =
        OF_SCHEMES.entrySet().stream().filter(of -> of.getValue().contains(scheme)).map(Map.Entry::getKey).collect(Collectors.toList());
    String files = filesOf(configuration, destination);
    Map<String, String> found = new TreeMap<>();
    if (prefixes.isEmpty() || files.isEmpty()) {
      return found;
    }
    try {
      Configuration asked = new Configuration(configuration);
      asked.set(CREDENTIAL_FILES, files);
      // A credential file in this very store could be read only with the credentials that it holds.
      asked = ProviderUtils.excludeIncompatibleCredentialProviders(
          asked, FileSystem.getFileSystemClass(scheme, configuration));
      for (CredentialProvider provider : CredentialProviderFactory.getProviders(asked)) {
        for (String name : provider.getAliases()) {
          if (beginsWith(prefixes, name)) {
            found.put(name, new String(asked.getPassword(name)));
          }
        }
      }
      return found;
    } catch (IOException error) {
      throw new CommitException(
          "the credentials in " + files + ", which " + CREDENTIAL_FILES + " names, cannot be read: " + error
              + "; outcome: unchanged; next step: see that the user of Spark's driver may read the file, and that"
              + " HADOOP_CREDSTORE_PASSWORD in its environment, or the file of the password, opens it",
          error);
    }
  }

  /** Returns the credential files for a destination; those of S3A's own keys come first. */
  private static String filesOf(Configuration configuration, Path destination) {
    String general = configuration.getTrimmed(CREDENTIAL_FILES, "");
    if (!OF_SCHEMES.get(S3A).contains(destination.toUri().getScheme())) {
      return general;
    }
    String ofBucket = S3A + "bucket." + destination.toUri().getAuthority() + "." + S3A_FILES;
    String own = configuration.getTrimmed(ofBucket, configuration.getTrimmed(S3A + S3A_FILES, ""));
    return own.isEmpty() || general.isEmpty() ? own + general : own + "," + general;
  }

  private static boolean beginsWith(List<String> prefixes, String key) {
    return prefixes.stream().anyMatch(key::startsWith);
  }

  /** Excludes keys of other stores, whose secrets this job does not need. */
  private static boolean bearsOn(String scheme, String key) {
    return key.startsWith(OF_COMMITTERS)
        || OF_SCHEMES.entrySet().stream().noneMatch(of -> key.startsWith(of.getKey()) && !of.getValue().contains(scheme));
  }

  /** Reports whether a user set a value; Hadoop's own defaults do not count. */
  private static boolean isGiven(Configuration configuration, String key) {
    String[] sources = configuration.getPropertySources(key);
    return sources == null || sources.length == 0 || !sources[sources.length - 1].endsWith("-default.xml");
  }
}
