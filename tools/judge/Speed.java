import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Comparator;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogFileUtils;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * How fast Kafka's own log is, warm: MEGABYTES (of 2^20 bytes) at each batch size under DIRECTORY.
 *
 * <p>One JSON object a batch size: leader and follower append a batch a call, and LogSegment.recover over the file that
 * the leader wrote, in MB (10^6 bytes) a second, the best of several passes. With the arguments recover DIRECTORY... only
 * that last one, over the first segment of each directory. With leader MEGABYTES DIRECTORY one pass of the leader's append
 * for each batch size that comes on standard input, so that another's passes can lie between them.
 */
public final class Speed {
    private static final int[] BATCH_BYTES = {1 << 10, 16 << 10, 256 << 10};
    private static final int RECORD_BYTES = 1000;
    private static final int PASSES = 5;
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;

    private Speed() {}

    public static void main(String[] arguments) throws IOException {
        var json = new ObjectMapper();
        if (arguments[0].equals("recover")) {
            for (int each = 1; each < arguments.length; each++) {
                var directory = new File(arguments[each]);
                double megabytes = LogFileUtils.logFile(directory, 0).length() / 1e6;
                System.out.println(json.createObjectNode().put("recover_mb_s", megabytes / recover(directory)));
            }
            return;
        }
        if (arguments[0].equals("leader")) {
            appendWhenAsked(Long.parseLong(arguments[1]) << 20, new File(arguments[2]), json);
            return;
        }
        long total = Long.parseLong(arguments[0]) << 20;
        var root = new File(arguments[1]);
        for (int size : BATCH_BYTES) {
            var batch = bytesOf(batch(size));
            int records = count(batch);
            long batches = total / batch.length;
            double megabytes = batches * (double) batch.length / 1e6;
            double leader = 0;
            double follower = 0;
            double recovery = 0;
            for (int pass = 0; pass < PASSES; pass++) {
                var directory = new File(root, "leader" + size + "-0");
                leader = Math.max(leader, megabytes / appendAsLeader(directory, batch, batches));
                recovery = Math.max(recovery, megabytes / recover(directory));
                remove(directory);
                directory = new File(root, "follower" + size + "-0");
                follower = Math.max(follower, megabytes / appendAsFollower(directory, batch, batches, records));
                remove(directory);
            }
            var line = json.createObjectNode();
            line.put("batch_bytes", batch.length).put("records", records);
            line.put("leader_mb_s", leader).put("follower_mb_s", follower).put("recover_mb_s", recovery);
            System.out.println(line);
        }
    }

    private static void appendWhenAsked(long total, File root, ObjectMapper json) throws IOException {
        var asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (var line = asked.readLine(); line != null; line = asked.readLine()) {
            var batch = bytesOf(batch(Integer.parseInt(line)));
            long batches = total / batch.length;
            var directory = new File(root, "leader" + line + "-0");
            double seconds = appendAsLeader(directory, batch, batches);
            remove(directory);
            var answer = json.createObjectNode().put("batch_bytes", batch.length).put("records", count(batch));
            System.out.println(answer.put("leader_mb_s", batches * (double) batch.length / 1e6 / seconds));
        }
    }

    private static MemoryRecords batch(int size) {
        var builder = MemoryRecords.builder(
                ByteBuffer.allocate(size + 1024),
                RecordBatch.CURRENT_MAGIC_VALUE,
                Compression.NONE,
                TimestampType.CREATE_TIME,
                0);
        var value = new byte[Math.min(RECORD_BYTES, size - 80)];
        new Random(1).nextBytes(value);
        do {
            builder.append(FIRST_TIMESTAMP, null, value);
        } while (builder.estimatedSizeInBytes() + value.length + 20 <= size);
        return builder.build();
    }

    private static byte[] bytesOf(MemoryRecords records) {
        var bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        return bytes;
    }

    private static int count(byte[] batch) {
        int records = 0;
        for (var ignored : MemoryRecords.readableRecords(ByteBuffer.wrap(batch)).records()) {
            records++;
        }
        return records;
    }

    /** Seconds; each call gets a batch with base offset 0, as off the network. */
    private static double appendAsLeader(File directory, byte[] batch, long batches) throws IOException {
        directory.mkdirs();
        var log = Loads.open(directory, new LogConfig(new Properties()), 0, 0, true, Time.SYSTEM);
        long start = System.nanoTime();
        for (long each = 0; each < batches; each++) {
            var buffer = ByteBuffer.wrap(batch);
            buffer.putLong(0, 0);
            log.appendAsLeader(MemoryRecords.readableRecords(buffer), 0);
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        log.close();
        return seconds;
    }

    private static double appendAsFollower(File directory, byte[] batch, long batches, int records)
            throws IOException {
        directory.mkdirs();
        var log = Loads.open(directory, new LogConfig(new Properties()), 0, 0, true, Time.SYSTEM);
        long start = System.nanoTime();
        for (long each = 0; each < batches; each++) {
            var buffer = ByteBuffer.wrap(batch);
            buffer.putLong(0, each * records);
            log.appendAsFollower(MemoryRecords.readableRecords(buffer), 0);
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        log.close();
        return seconds;
    }

    private static double recover(File directory) throws IOException {
        var topicPartition = new TopicPartition("speed", 0);
        var expiry = new ProducerStateManagerConfig(86_400_000, false);
        double best = Double.MAX_VALUE;
        for (int pass = 0; pass < PASSES; pass++) {
            var producers = new ProducerStateManager(topicPartition, directory, 600_000, expiry, Time.SYSTEM);
            var file = new File(directory, "leader-epoch-checkpoint");
            var checkpoint = new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(10));
            var epochs = new LeaderEpochFileCache(topicPartition, checkpoint, new Loads.AtOnce());
            var config = new LogConfig(new Properties());
            var segment = LogSegment.open(directory, 0, config, Time.SYSTEM, true, 0, false, "");
            long start = System.nanoTime();
            int removed = segment.recover(producers, epochs);
            best = Math.min(best, (System.nanoTime() - start) / 1e9);
            segment.close();
            if (removed != 0) {
                throw new IllegalStateException(removed + " bytes removed");
            }
        }
        return best;
    }

    private static void remove(File directory) throws IOException {
        try (var paths = Files.walk(directory.toPath())) {
            for (var path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }
}
