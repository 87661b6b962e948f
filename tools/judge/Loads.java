import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Opens partition directories with Kafka's log code, does what each case asks, and tells what it then holds.
 *
 * <p>One JSON object a line on standard input: id, dir, config, log_start_offset, recovery_point, clean, now_ms, then (a
 * list of ["truncate", offset] and ["truncate_fully", offset]). One line of JSON a case on standard output, in the form
 * of tests/golden/recovery.jsonl: loaded, then, files_after_close; or error and message.
 */
public final class Loads {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PRODUCER_EXPIRY_CHECK_MS = 600_000;
    private static final int MAX_TRANSACTION_MS = 900_000;

    private Loads() {}

    public static void main(String[] arguments) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(JSON.writeValueAsString(load(JSON.readTree(line))));
            System.out.flush();
        }
    }

    private static ObjectNode load(JsonNode request) {
        var answer = JSON.createObjectNode();
        answer.set("id", request.get("id"));
        var directory = new File(request.get("dir").asText());
        UnifiedLog log = null;
        try {
            log = open(directory, request);
            answer.set("loaded", describe(log));
            if (request.path("then").size() > 0) {
                var done = answer.putArray("then");
                for (JsonNode operation : request.get("then")) {
                    done.add(operate(log, operation));
                }
            }
            log.close();
            log = null;
            answer.set("files_after_close", describeFiles(directory.toPath()));
        } catch (Throwable thrown) { // a judge of damage meets every kind of exception, errors of the VM included
            answer.put("error", thrown.getClass().getSimpleName());
            var message = String.valueOf(thrown.getMessage()).lines().findFirst().orElse("");
            answer.put("message", message.replace(String.valueOf(directory.getParent()), ""));
            if (log != null) {
                closeAfterFailure(log);
            }
        }
        return answer;
    }

    private static void closeAfterFailure(UnifiedLog log) {
        try {
            log.closeHandlers();
        } catch (RuntimeException ignored) {
            // the case has its error already
        }
    }

    static UnifiedLog open(File directory, JsonNode request) throws IOException {
        var properties = new Properties();
        for (Map.Entry<String, JsonNode> each : request.get("config").properties()) {
            properties.setProperty(each.getKey(), each.getValue().asText());
        }
        return open(
                directory,
                new LogConfig(properties),
                request.get("log_start_offset").asLong(),
                request.get("recovery_point").asLong(),
                request.get("clean").asBoolean(),
                new StandingClock(request.get("now_ms").asLong()));
    }

    static UnifiedLog open(
            File directory, LogConfig config, long logStartOffset, long recoveryPoint, boolean clean, Time time)
            throws IOException {
        return UnifiedLog.create(
                directory,
                config,
                logStartOffset,
                recoveryPoint,
                new AtOnce(),
                new BrokerTopicStats(),
                time,
                MAX_TRANSACTION_MS,
                new ProducerStateManagerConfig(86_400_000, false),
                PRODUCER_EXPIRY_CHECK_MS,
                new LogDirFailureChannel(10),
                clean,
                Optional.empty());
    }

    private static ObjectNode operate(UnifiedLog log, JsonNode operation) throws IOException {
        var result = JSON.createObjectNode();
        result.set("op", operation);
        var offset = operation.get(1).asLong();
        switch (operation.get(0).asText()) {
            case "truncate" -> result.put("changed", log.truncateTo(offset));
            case "truncate_fully" -> log.truncateFullyAndStartAt(offset, Optional.empty());
            default -> throw new IllegalArgumentException("unknown operation " + operation);
        }
        result.set("state", describe(log));
        return result;
    }

    // What a log holds

    private static ObjectNode describe(UnifiedLog log) throws IOException {
        var state = JSON.createObjectNode();
        state.put("log_start_offset", log.logStartOffset());
        state.put("log_end_offset", log.logEndOffset());
        state.put("recovery_point", log.recoveryPoint());
        state.put("high_watermark", log.highWatermark());
        var segments = state.putArray("segments");
        for (LogSegment segment : log.logSegments()) {
            segments.add(describe(segment));
        }
        var epochs = state.putArray("epochs");
        log.leaderEpochCache().epochEntries().forEach(each -> epochs.addArray().add(each.epoch).add(each.startOffset));
        var producers = state.putArray("producers");
        new TreeMap<>(log.producerStateManager().activeProducers()).values().forEach(entry -> {
            var each = producers.addObject();
            each.put("producer_id", entry.producerId());
            each.put("epoch", entry.producerEpoch());
            each.put("last_sequence", entry.lastSeq());
            each.put("last_offset", entry.lastDataOffset());
            each.put("coordinator_epoch", entry.coordinatorEpoch());
            each.put("open_transaction_first_offset", entry.currentTxnFirstOffset().orElse(-1));
            each.put("batches_kept", entry.batchMetadata().size());
        });
        return state;
    }

    private static ObjectNode describe(LogSegment segment) throws IOException {
        var described = JSON.createObjectNode();
        described.put("base_offset", segment.baseOffset());
        described.put("size", segment.size());
        var offsets = described.putArray("offset_index");
        for (int slot = 0; slot < segment.offsetIndex().entries(); slot++) {
            var entry = segment.offsetIndex().entry(slot);
            pair(offsets, entry.offset, entry.position);
        }
        var times = described.putArray("time_index");
        for (int slot = 0; slot < segment.timeIndex().entries(); slot++) {
            var entry = segment.timeIndex().entry(slot);
            pair(times, entry.timestamp, entry.offset);
        }
        var largest = segment.readMaxTimestampAndOffsetSoFar();
        described.putArray("max_timestamp").add(largest.timestamp).add(largest.offset);
        var aborted = described.putArray("aborted_transactions");
        for (var each : segment.txnIndex().allAbortedTxns()) {
            pair(aborted, each.producerId(), each.firstOffset()).add(each.lastOffset()).add(each.lastStableOffset());
        }
        return described;
    }

    private static ArrayNode pair(ArrayNode list, long first, long second) {
        return list.addArray().add(first).add(second);
    }

    private static ObjectNode describeFiles(Path directory) throws Exception {
        var files = JSON.createObjectNode();
        var names = directory.toFile().list();
        Arrays.sort(names);
        for (String name : names) {
            var content = Files.readAllBytes(directory.resolve(name));
            var digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(content));
            files.putArray(name).add(content.length).add(digest.substring(0, 16));
        }
        return files;
    }

    // A world without time and without threads

    private record StandingClock(long milliseconds) implements Time {
        @Override
        public long nanoseconds() {
            return TimeUnit.MILLISECONDS.toNanos(milliseconds);
        }

        @Override
        public void sleep(long ms) {}

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {}
    }

    /** What is scheduled once is done at once; what is scheduled again and again, never. */
    static final class AtOnce implements Scheduler {
        @Override
        public void startup() {}

        @Override
        public void shutdown() {}

        @Override
        public void resizeThreadPool(int newSize) {}

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs <= 0) {
                task.run();
            }
            return new Done();
        }
    }

    private static final class Done implements ScheduledFuture<Object> {
        @Override
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }

        @Override
        public boolean cancel(boolean mayInterrupt) {
            return true;
        }

        @Override
        public boolean isCancelled() {
            return false;
        }

        @Override
        public boolean isDone() {
            return true;
        }

        @Override
        public Object get() {
            return null;
        }

        @Override
        public Object get(long timeout, TimeUnit unit) {
            return null;
        }
    }
}
