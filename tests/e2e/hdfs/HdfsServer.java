import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A NameNode and a DataNode on loopback, until it is killed: HdfsServer FOLDER PORT HTTP_PORT.
 *  It goes on with what it left in the folder. */
public class HdfsServer {
    public static void main(String[] told) throws Exception {
        Configuration settings = new Configuration();
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, told[0]);
        settings.setInt("dfs.namenode.handler.count", 4);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings)
            .nameNodePort(Integer.parseInt(told[1]))
            .nameNodeHttpPort(Integer.parseInt(told[2]))
            .numDataNodes(1)
            .format(!new File(told[0]).exists())
            .build();
        cluster.waitActive();
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
