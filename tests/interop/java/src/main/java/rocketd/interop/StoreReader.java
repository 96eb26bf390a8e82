package rocketd.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Looks messages up in every way there is, and prints all that the client knows of each.
 *
 * <p>Each line of the file {@code --wanted} is a JSON object: {@code topic}, {@code offsetMsgId} (looked at by id),
 * {@code msgId} (searched for as a unique key, unless missing) and {@code keys} (each searched for, words). A line is
 * printed for each look-up: {@code by}, {@code wanted} and {@code found}.
 */
final class StoreReader {
    private static final int MAX_FOUND = 64;

    private final Options options;
    private final DefaultMQProducer client;

    StoreReader(Options options) {
        this.options = options;
        client = new DefaultMQProducer(options.text("group"));
        client.setNamesrvAddr(options.text("namesrv"));
    }

    int run() throws Exception {
        client.start();
        client.getDefaultMQProducerImpl().getmQClientFactory().getMQAdminImpl().setTimeoutMillis(Main.REQUEST_MILLIS);
        try {
            for (String line : Files.readAllLines(Path.of(options.text("wanted")), StandardCharsets.UTF_8)) {
                lookUp(JSON.parseObject(line));
            }
        } finally {
            client.shutdown();
        }
        return 0;
    }

    private void lookUp(JSONObject wanted) throws Exception {
        String topic = wanted.getString("topic");
        String offsetId = wanted.getString("offsetMsgId");
        print("id", offsetId, List.of(client.viewMessage(offsetId)));
        String id = wanted.getString("msgId");
        if (id != null) {
            // The public method takes a unique key for an address first, and waits for a connection to that.
            MessageExt found = client.getDefaultMQProducerImpl().queryMessageByUniqKey(topic, id);
            print("unique key", id, found == null ? List.of() : List.of(found));
        }
        for (Object key : wanted.getJSONArray("keys")) {
            String word = (String) key;
            print("key", word, client.queryMessage(topic, word, MAX_FOUND, 0, Long.MAX_VALUE).getMessageList());
        }
    }

    private static void print(String by, String wanted, List<MessageExt> found) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("by", by);
        fields.put("wanted", wanted);
        List<Object> messages = new ArrayList<>();
        for (MessageExt message : found) {
            messages.add(everything(message));
        }
        fields.put("found", messages);
        Output.line(fields);
    }

    private static Map<String, Object> everything(MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("physicalOffset", message.getCommitLogOffset());
        fields.put("storeSize", message.getStoreSize());
        fields.put("msgId", message.getMsgId());
        fields.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        fields.put("flag", message.getFlag());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("bodyCrc", message.getBodyCRC());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("bornHost", host(message.getBornHost()));
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("storeHost", host(message.getStoreHost()));
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fields.put("properties", message.getProperties());
        fields.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        return fields;
    }

    /** Address and port as a record holds them, in hexadecimal. */
    private static String host(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        StringBuilder text = new StringBuilder();
        for (byte b : internet.getAddress().getAddress()) {
            text.append(String.format("%02x", b));
        }
        return text.append(String.format("%08x", internet.getPort())).toString();
    }
}
