package standpipe;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Local files whose permissions are set by a system call. Without its native library, Hadoop runs
 * `chmod` for each file, six processes in a batch. Compiled by session.py, with Spark's Janino.
 */
public class PrivateLocalFiles extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
        String text = permission.getUserAction().SYMBOL
            + permission.getGroupAction().SYMBOL
            + permission.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(
            pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
    }
}
