package standpipe;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/**
 * One of Hadoop's file systems, for hadoop_path.py: a call of Python's costs more than one of the
 * file system, so each method here is one step of a checkpoint. Compiled by hadoop_path.py with
 * Spark's Janino, which has no lambdas and ignores type parameters.
 */
public class HadoopFiles {
    /** Copies wait for the network most of the time. */
    private static final int COPIES_AT_ONCE = 16;
    private static final int BUFFER_BYTES = 65536;

    private final Path path;
    private final FileSystem files;
    private final FileContext context;
    private final AtomicLong copied = new AtomicLong();

    public HadoopFiles(String uri, Configuration settings) throws IOException {
        path = new Path(uri);
        files = path.getFileSystem(settings);
        context = FileContext.getFileContext(files.getUri(), settings);
    }

    /** The file system. */
    public String root() {
        URI uri = files.getUri();
        return uri.getScheme() + "://" + (uri.getAuthority() == null ? "" : uri.getAuthority());
    }

    /** The path that was given, without its file system. */
    public String path() {
        return files.makeQualified(path).toUri().getPath();
    }

    private Path at(String place) {
        return files.makeQualified(new Path(place));
    }

    public boolean exists(String place) throws IOException {
        return files.exists(at(place));
    }

    public boolean isFolder(String place) throws IOException {
        try {
            return files.getFileStatus(at(place)).isDirectory();
        } catch (FileNotFoundException none) {
            return false;
        }
    }

    public String names(String folder) throws IOException {
        List found = new ArrayList();
        FileStatus[] all = files.listStatus(at(folder));
        for (int n = 0; n < all.length; n++) {
            found.add(all[n].getPath().getName());
        }
        return json(found);
    }

    public String matches(String folder, String pattern) throws IOException {
        List found = new ArrayList();
        String escaped = folder.replaceAll("([\\\\*?{}\\[\\]])", "\\\\$1");
        FileStatus[] all = files.globStatus(new Path(at("/"), escaped + "/" + pattern));
        for (int n = 0; all != null && n < all.length; n++) {
            found.add(all[n].getPath().toUri().getPath());
        }
        return json(found);
    }

    public long changedMs(String place) throws IOException {
        FileStatus said = files.getFileStatus(at(place));
        long newest = said.isDirectory() ? -1L : said.getModificationTime();
        if (said.isDirectory()) {
            RemoteIterator all = files.listFiles(at(place), true);
            while (all.hasNext()) {
                newest = Math.max(newest, ((FileStatus) all.next()).getModificationTime());
            }
        }
        return newest < 0 ? said.getModificationTime() : newest;
    }

    public byte[] read(String file) throws IOException {
        InputStream in = files.open(at(file));
        try {
            return in.readAllBytes();
        } finally {
            in.close();
        }
    }

    /** A draft gets the name of the file: who reads it sees the old file or the new one. */
    public void write(String file, byte[] content) throws IOException {
        Path target = at(file);
        Path draft = new Path(target.getParent(), "." + target.getName() + ".tmp");
        try {
            OutputStream out = files.create(draft, true);
            try {
                out.write(content);
            } finally {
                out.close();
            }
            context.rename(draft, target, new Options.Rename[] {Options.Rename.OVERWRITE});
        } catch (IOException failed) {
            try {
                files.delete(draft, false);
            } catch (IOException stays) {
                failed.addSuppressed(stays);
            }
            throw failed;
        }
    }

    /** Fails if the target is there: FileSystem.rename would move into a folder. */
    public void rename(String from, String to) throws IOException {
        context.rename(at(from), at(to), new Options.Rename[0]);
    }

    /** False: there was nothing. */
    public boolean remove(String place, boolean isTree) throws IOException {
        return files.delete(at(place), isTree);
    }

    /** `unique`: a name that no other call has. A folder that must be new gets its name by a rename,
     *  which fails for all but one. */
    public void makeFolder(String folder, boolean mayExist, String unique) throws IOException {
        if (mayExist) {
            files.mkdirs(at(folder));
            return;
        }
        Path target = at(folder);
        Path draft = new Path(target.getParent(), "." + unique + ".tmp");
        files.mkdirs(draft);
        try {
            context.rename(draft, target, new Options.Rename[0]);
        } finally {
            files.delete(draft, true);
        }
    }

    public void copyTree(String from, String to) throws Exception {
        final Path source = at(from);
        final Path target = at(to);
        files.mkdirs(target);
        ExecutorService threads = Executors.newFixedThreadPool(COPIES_AT_ONCE);
        try {
            List copies = new ArrayList();
            List folders = new ArrayList();
            folders.add(source);
            while (!folders.isEmpty()) {
                FileStatus[] all;
                try {
                    all = files.listStatus((Path) folders.remove(folders.size() - 1));
                } catch (FileNotFoundException gone) {
                    continue;
                }
                for (int n = 0; n < all.length; n++) {
                    Path each = all[n].getPath();
                    if (all[n].isDirectory()) {
                        folders.add(each);
                    } else if (!each.getName().startsWith(".")) {  // what is not complete yet
                        String below = each.toUri().getPath().substring(
                            source.toUri().getPath().length() + 1);
                        copies.add(threads.submit(copy(each, new Path(target, below))));
                    }
                }
            }
            for (Iterator each = copies.iterator(); each.hasNext(); ) {
                ((Future) each.next()).get();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    /** Bytes and files that were copied so far: it grows while a copy advances. */
    public long copied() {
        return copied.get();
    }

    private Callable copy(final Path from, final Path to) {
        return new Callable() {
            public Object call() throws Exception {
                InputStream in;
                try {
                    in = files.open(from);
                } catch (FileNotFoundException gone) {  // its writer has removed it as too old
                    return null;
                }
                try {
                    OutputStream out = files.create(to, true);
                    try {
                        byte[] buffer = new byte[BUFFER_BYTES];
                        int length = in.read(buffer);
                        while (length >= 0) {
                            out.write(buffer, 0, length);
                            copied.addAndGet((long) length);
                            length = in.read(buffer);
                        }
                    } finally {
                        out.close();
                    }
                    copied.incrementAndGet();
                } finally {
                    in.close();
                }
                return null;
            }
        };
    }

    /** Names have no character that JSON cannot have as it is, but these two. */
    private static String json(List names) {
        StringBuilder text = new StringBuilder("[");
        for (int n = 0; n < names.size(); n++) {
            String name = ((String) names.get(n)).replace("\\", "\\\\").replace("\"", "\\\"");
            text.append(n == 0 ? "" : ",").append('"').append(name).append('"');
        }
        return text.append(']').toString();
    }
}
