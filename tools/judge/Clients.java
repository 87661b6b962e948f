import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients, told what to do: SERVER create|consume|produce|delete-before, one JSON object a line on standard
 * input, JSON lines on standard output.
 *
 * <ul>
 *   <li>create: {name, config}; nothing is printed.
 *   <li>consume: {names, isolation}; of each topic every record of partition 0 from its first offset on, then a line with
 *       name, isolation, start, end and the consumer's position.
 *   <li>produce: {name, config, steps}: each step a list of a verb and its arguments: ["send", key, value, timestamp, headers] (in
 *       hex, or null), ["flush"], ["begin"], ["commit"], ["abort"], ["leave"] (the producer is left as it stands).
 *   <li>delete-before: {name, offset}.
 * </ul>
 */
public final class Clients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private Clients() {}

    private interface Act {
        void on(JsonNode request) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        var server = arguments[0];
        Act act = switch (arguments[1]) {
            case "create" -> request -> create(server, request);
            case "consume" -> request -> consume(server, request);
            case "produce" -> request -> produce(server, request);
            case "delete-before" -> request -> deleteBefore(server, request);
            default -> throw new IllegalArgumentException(arguments[1]);
        };
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            act.on(JSON.readTree(line));
        }
        System.out.flush();
    }

    private static Properties settings(String server) {
        var settings = new Properties();
        settings.setProperty("bootstrap.servers", server);
        return settings;
    }

    private static void create(String server, JsonNode request) throws ExecutionException, InterruptedException {
        Map<String, String> config = new HashMap<>();
        request.get("config").properties().forEach(each -> config.put(each.getKey(), each.getValue().asText()));
        try (var admin = Admin.create(settings(server))) {
            var topic = new NewTopic(request.get("name").asText(), 1, (short) 1).configs(config);
            admin.createTopics(List.of(topic)).all().get();
        }
    }

    private static void deleteBefore(String server, JsonNode request) throws ExecutionException, InterruptedException {
        var partition = new TopicPartition(request.get("name").asText(), 0);
        var offset = RecordsToDelete.beforeOffset(request.get("offset").asLong());
        try (var admin = Admin.create(settings(server))) {
            admin.deleteRecords(Map.of(partition, offset)).all().get();
        }
    }

    // Consumer

    private static void consume(String server, JsonNode request) throws IOException {
        var settings = settings(server);
        settings.setProperty("isolation.level", request.get("isolation").asText());
        settings.setProperty("enable.auto.commit", "false");
        settings.setProperty("auto.offset.reset", "none");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            for (JsonNode name : request.get("names")) {
                var end = consume(consumer, new TopicPartition(name.asText(), 0));
                System.out.println(end.put("isolation", request.get("isolation").asText()));
            }
        }
    }

    private static ObjectNode consume(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition)
            throws IOException {
        consumer.assign(List.of(partition));
        long start = consumer.beginningOffsets(List.of(partition)).get(partition);
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        consumer.seek(partition, start);
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (consumer.position(partition) < end && System.nanoTime() < deadline) {
            for (var record : consumer.poll(Duration.ofMillis(200))) {
                System.out.println(JSON.writeValueAsString(describe(record)));
            }
        }
        var summary = JSON.createObjectNode().put("name", partition.topic());
        return summary.put("start", start).put("end", end).put("position", consumer.position(partition));
    }

    private static ObjectNode describe(ConsumerRecord<byte[], byte[]> record) {
        var described = JSON.createObjectNode();
        described.put("offset", record.offset()).put("timestamp", record.timestamp());
        described.put("timestamp_type", record.timestampType().name);
        described.put("leader_epoch", record.leaderEpoch().orElse(-1));
        described.put("key", hex(record.key())).put("value", hex(record.value()));
        var headers = described.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(hex(header.value()));
        }
        return described;
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private static byte[] bytes(JsonNode hex) {
        return hex == null || hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
    }

    // Producer

    private static void produce(String server, JsonNode request) throws Exception {
        var settings = settings(server);
        request.get("config").properties().forEach(each -> settings.setProperty(each.getKey(), each.getValue().asText()));
        var serializer = new ByteArraySerializer();
        var producer = new KafkaProducer<>(settings, serializer, serializer);
        boolean isLeft = false;
        if (settings.containsKey("transactional.id")) {
            producer.initTransactions();
        }
        for (JsonNode step : request.get("steps")) {
            switch (step.get(0).asText()) {
                case "send" -> producer.send(record(request.get("name").asText(), step));
                case "flush" -> producer.flush();
                case "begin" -> producer.beginTransaction();
                case "commit" -> producer.commitTransaction();
                case "abort" -> {
                    producer.flush(); // what is aborted is to be in the log
                    producer.abortTransaction();
                }
                case "leave" -> {
                    producer.flush();
                    isLeft = true;
                }
                default -> throw new IllegalArgumentException(step.toString());
            }
        }
        producer.close(isLeft ? Duration.ZERO : PATIENCE);
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode step) {
        Long timestamp = step.path(3).isNumber() ? (Long) step.get(3).asLong() : null;
        Headers headers = new RecordHeaders();
        for (JsonNode header : step.path(4)) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        return new ProducerRecord<>(topic, 0, timestamp, bytes(step.get(1)), bytes(step.get(2)), headers);
    }
}
