package rocketd.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Consumes until the wanted number of distinct messages was accepted, and prints every delivery. */
final class Receiver {
    /** The shortest delay there is: a second. The default, level 3, would only make the ring slower. */
    private static final int RETRY_DELAY_LEVEL = 1;

    private final Options options;
    private final boolean failFirst;
    private final int count;
    private final Set<String> refused = ConcurrentHashMap.newKeySet();
    private final Set<String> accepted = ConcurrentHashMap.newKeySet();
    private final CountDownLatch enough = new CountDownLatch(1);

    Receiver(Options options) {
        this.options = options;
        this.failFirst = options.has("fail-first");
        this.count = options.number("count");
    }

    int run() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            options.text("group"), Credentials.hook(options), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(options.text("namesrv"));
        // A group's retry topic appears after its first heartbeat; the default is to look again after half a minute.
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.text("topic"), options.has("sql")
            ? MessageSelector.bySql(options.text("sql"))
            : MessageSelector.byTag(options.text("tag", "*")));
        if (options.has("order")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                context.setSuspendCurrentQueueTimeMillis(100);
                return take(messages.get(0)) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(RETRY_DELAY_LEVEL);
                return take(messages.get(0)) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        try {
            return enough.await(options.number("timeout"), TimeUnit.SECONDS) ? 0 : 1;
        } finally {
            consumer.shutdown();
        }
    }

    /** Prints the message and says whether it is accepted; batches of one are the client's default. */
    private boolean take(MessageExt message) {
        String index = message.getUserProperty("index");
        boolean accept = !failFirst || !refused.add(index);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("index", Integer.parseInt(index));
        fields.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("properties", userProperties(message));
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("accepted", accept);
        Output.line(fields);
        if (accept && accepted.add(index) && accepted.size() >= count) {
            enough.countDown();
        }
        return accept;
    }

    /** The properties of the sender's own: all names that the system uses are in capitals. */
    private static Map<String, String> userProperties(MessageExt message) {
        Map<String, String> user = new TreeMap<>();
        message.getProperties().forEach((name, value) -> {
            if (name.chars().anyMatch(Character::isLowerCase)) {
                user.put(name, value);
            }
        });
        return user;
    }
}
