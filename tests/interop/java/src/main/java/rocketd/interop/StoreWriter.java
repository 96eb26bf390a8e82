package rocketd.interop;

import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends some of every kind of message that a store tells apart, and prints what each is and where it was put.
 *
 * <p>The numbers of messages begin at {@code --first}. Below the topic T that is given: T itself has one by one,
 * asynchronous, one-way and batch messages, T-order two ordered streams, T-delay delayed ones of level 1. With
 * {@code --level} there are delayed ones of that level alone.
 */
final class StoreWriter {
    private static final int SYNC = 120;
    private static final int ASYNC = 60;
    private static final int ONEWAY = 10;
    private static final int BATCHES = 6;
    private static final int BATCH = 10;
    private static final int ORDERED = 60;
    private static final int DELAYED = 8;
    private static final int LONG_BODY = 12_000; // the client compresses from 4096 bytes on
    private static final long LIMIT_SECONDS = 60;

    private final String topic;
    private final DefaultMQProducer producer;
    private final int level;
    private int next;

    StoreWriter(Options options) {
        topic = options.text("topic");
        next = options.number("first");
        level = options.number("level", 0);
        producer = new DefaultMQProducer(options.text("group"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(Main.REQUEST_MILLIS);
    }

    int run() throws Exception {
        producer.start();
        try {
            if (level > 0) {
                sendDelayed(level);
            } else {
                sendAll();
            }
        } finally {
            producer.shutdown();
        }
        return 0;
    }

    private void sendAll() throws Exception {
        for (int i = 0; i < SYNC; i++) {
            Message message = message(topic);
            message.setWaitStoreMsgOK(i % 10 != 0);
            print("sync", message, producer.send(message));
        }
        sendAsync();
        for (int i = 0; i < ONEWAY; i++) {
            Message message = message(topic);
            producer.sendOneway(message);
            print("oneway", message, null);
        }
        for (int i = 0; i < BATCHES; i++) {
            sendBatch();
        }
        for (int i = 0; i < ORDERED; i++) {
            Message message = message(topic + "-order");
            print("order", message, producer.send(message, (queues, m, stream) -> queues.get((Integer) stream), i % 2));
        }
        sendDelayed(1);
    }

    private void sendAsync() throws Exception {
        CountDownLatch answered = new CountDownLatch(ASYNC);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < ASYNC; i++) {
            Message message = message(topic);
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    print("async", message, result);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    failure.set(e);
                    answered.countDown();
                }
            });
        }
        if (!answered.await(LIMIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answered.getCount() + " sends were not answered");
        }
        if (failure.get() != null) {
            throw new IllegalStateException("an asynchronous send failed", failure.get());
        }
    }

    private void sendBatch() throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < BATCH; i++) {
            batch.add(message(topic));
        }
        printBatch("batch", batch, producer.send(batch));
    }

    private void sendDelayed(int level) throws Exception {
        for (int i = 0; i < DELAYED; i++) {
            Message message = message(topic + "-delay");
            message.setDelayTimeLevel(level);
            print("delay-" + level, message, producer.send(message));
        }
    }

    private Message message(String of) {
        return message(of, next++);
    }

    /** One message: bodies of many lengths, two keys of its own, one that many have, and a tag for two of three. */
    static Message message(String of, int index) {
        Random random = new Random(index);
        byte[] body = new byte[index % 40 == 7 ? LONG_BODY : 1 + random.nextInt(1500)];
        random.nextBytes(body);
        Message message = new Message(of, body);
        if (index % 3 != 0) {
            message.setTags("Tag" + index % 3);
        }
        message.setKeys(List.of("key-" + index, "klíč-" + index, "shared-" + index % 20));
        message.setFlag(index);
        message.putUserProperty("index", Integer.toString(index));
        message.putUserProperty("text", "žluťoučký kůň, 消息, 🚀");
        return message;
    }

    static void printBatch(String kind, List<Message> batch, SendResult result) {
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int i = 0; i < batch.size(); i++) {
            Map<String, Object> fields = fields(kind, batch.get(i));
            place(fields, result, ids[i], offsetIds[i], result.getQueueOffset() + i);
            Output.line(fields);
        }
    }

    static void print(String kind, Message message, SendResult result) {
        Map<String, Object> fields = fields(kind, message);
        if (result != null) {
            place(fields, result, result.getMsgId(), result.getOffsetMsgId(), result.getQueueOffset());
        }
        Output.line(fields);
    }

    private static Map<String, Object> fields(String kind, Message message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("kind", kind);
        fields.put("index", Integer.parseInt(message.getUserProperty("index")));
        fields.put("topic", message.getTopic());
        fields.put("flag", message.getFlag());
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        return fields;
    }

    private static void place(Map<String, Object> fields, SendResult result, String id, String offsetId, long queueOffset) {
        fields.put("msgId", id);
        fields.put("offsetMsgId", offsetId);
        fields.put("queueId", result.getMessageQueue().getQueueId());
        fields.put("queueOffset", queueOffset);
        fields.put("status", result.getSendStatus().name());
    }
}
