import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local disk as it is: no checksum files, and no permissions.
 *
 * <p>Hadoop's own local file system writes a checksum beside each file and, without Hadoop's native library, starts a
 * process for each file and directory whose permissions it sets. A comparison with it alone flatters a file system that does not.
 */
public final class BareFileSystem extends RawLocalFileSystem {

  @Override
  public void setPermission(Path path, FsPermission permission) {
  }
}
