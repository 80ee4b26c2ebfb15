package io.github.lakecommitter.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.ChecksumFileSystem;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.RemoteIterator;

/** Files below a task attempt's directory, with identities in the form of this package's stores. */
final class WrittenFiles {
  /** A file; the identity is null if its store shows none (the driver then lists), the record if it is no upload. */
  static final class Written {
    final Path path;
    final long size;
    final String identity;
    final ObjectNode upload;

    Written(Path path, long size, String identity, ObjectNode upload) {
      this.path = path;
      this.size = size;
      this.identity = identity;
      this.upload = upload;
    }
  }

  private static final String ATTRIBUTES = "unix:isDirectory,isRegularFile,size,ino,lastModifiedTime";

  private final Map<String, Written> found = new LinkedHashMap<>();

  private WrittenFiles() {}

  /**
   * Returns every file below a directory by its path, without checksum files, which only a raw local file system lists.
   * One call per directory is cheaper than one per file, and Hadoop's recursive listing would make them in sequence.
   *
   * @param proof a file whose identity the driver's Python knows, and that identity: identities on a local disk count
   *     only if this machine sees the same one, which network file systems do not guarantee
   */
  static Map<String, Written> below(FileSystem fs, Path directory, Path proof, String identity) throws IOException {
    WrittenFiles files = new WrittenFiles();
    RawLocalFileSystem disk = behind(fs, RawLocalFileSystem.class);
    if (disk == null) {
      files.addListed(fs, directory);
    } else {
      boolean known = identity != null && identity.equals(identityOn(disk, proof));
      boolean checksums = behind(fs, ChecksumFileSystem.class) != null;
      files.addOnDisk(disk.pathToFile(directory).toPath(), directory, known, checksums);
    }
    return files.found;
  }

  /** The same without real directories: one call per thousand files; empty if no file was written. */
  static Map<String, Written> beginningWith(FileSystem fs, Path directory) throws IOException {
    WrittenFiles files = new WrittenFiles();
    try {
      RemoteIterator<LocatedFileStatus> all = fs.listFiles(directory, true);
      while (all.hasNext()) {
        files.add(all.next());
      }
    } catch (FileNotFoundException error) {
      files.found.clear();
    }
    return files.found;
  }

  private void add(FileStatus status) {
    put(status.getPath(), new Written(status.getPath(), status.getLen(), identityOf(status), null));
  }

  private void put(Path path, Written written) {
    found.put(path.toUri().getPath(), written);
  }

  private static String identityOf(FileStatus status) {
    if (status instanceof EtagSource) {
      return ((EtagSource) status).getEtag();
    }
    return "hdfs".equals(status.getPath().toUri().getScheme()) ? "m" + status.getModificationTime() : null;
  }

  // -- stores --------------------------------------------------------------------------------------------------------

  private void addListed(FileSystem fs, Path place) throws IOException {
    List<Path> level = Collections.singletonList(place);
    while (!level.isEmpty()) {
      List<Path> below = new ArrayList<>();
      for (FileStatus[] listed : listings(fs, level)) {
        for (FileStatus status : listed) {
          if (status.isDirectory()) {
            below.add(status.getPath());
          } else {
            add(status);
          }
        }
      }
      level = below;
    }
  }

  private static List<FileStatus[]> listings(FileSystem fs, List<Path> directories) throws IOException {
    List<Callable<FileStatus[]>> calls = new ArrayList<>();
    for (Path directory : directories) {
      calls.add(() -> fs.listStatus(directory));
    }
    return calls.size() == 1
        ? Collections.singletonList(fs.listStatus(directories.get(0)))
        : Together.call(calls);
  }

  // -- disks ---------------------------------------------------------------------------------------------------------

  /** Lists a local disk: Hadoop's own listing makes five calls per file, and does not show the identity. */
  private void addOnDisk(java.nio.file.Path place, Path shown, boolean known, boolean checksums) throws IOException {
    try (DirectoryStream<java.nio.file.Path> children = Files.newDirectoryStream(place)) {
      for (java.nio.file.Path child : children) {
        // A name with a colon would be read as a scheme.
        Path path = new Path(shown, new Path(null, null, child.getFileName().toString()));
        if (checksums && ChecksumFileSystem.isChecksumFile(path)) {
          continue;
        }
        Map<String, Object> is = Files.readAttributes(child, ATTRIBUTES, LinkOption.NOFOLLOW_LINKS);
        if ((Boolean) is.get("isDirectory")) {
          addOnDisk(child, path, known, checksums);
        } else if ((Boolean) is.get("isRegularFile")) {
          put(path, new Written(path, (Long) is.get("size"), known ? identityIn(is) : null, null));
        } else {
          put(path, null);
        }
      }
    }
  }

  private static String identityOn(RawLocalFileSystem disk, Path path) throws IOException {
    try {
      return identityIn(Files.readAttributes(disk.pathToFile(path).toPath(), ATTRIBUTES, LinkOption.NOFOLLOW_LINKS));
    } catch (NoSuchFileException error) {
      return null;
    }
  }

  private static String identityIn(Map<String, Object> attributes) {
    FileTime modified = (FileTime) attributes.get("lastModifiedTime");
    return Long.toUnsignedString((Long) attributes.get("ino")) + ":" + modified.to(TimeUnit.NANOSECONDS);
  }

  /** Returns the first file system of a kind in a chain of filters; null if there is none. */
  private static <T extends FileSystem> T behind(FileSystem fs, Class<T> kind) {
    FileSystem inner = fs;
    while (!kind.isInstance(inner)) {
      if (!(inner instanceof FilterFileSystem)) {
        return null;
      }
      inner = ((FilterFileSystem) inner).getRawFileSystem();
    }
    return kind.cast(inner);
  }
}
