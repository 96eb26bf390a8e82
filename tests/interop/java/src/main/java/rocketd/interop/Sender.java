package rocketd.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

/** Sends the numbered messages in the way that is asked for and prints what became of each. */
final class Sender {
    private static final int ORDERED_STREAMS = 4;

    private final Options options;
    private final DefaultMQProducer producer;
    private final int count;

    Sender(Options options) {
        this.options = options;
        this.count = options.number("count");
        producer = new DefaultMQProducer(options.text("group"), Credentials.hook(options));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(Main.REQUEST_MILLIS);
    }

    int run() throws Exception {
        producer.start();
        try {
            if (options.has("batch")) {
                sendBatches(options.number("batch"));
            } else if (options.has("async")) {
                sendAsync();
            } else if (options.has("oneway")) {
                sendOneway();
            } else {
                sendOneByOne(options.has("order"));
            }
        } finally {
            producer.shutdown();
        }
        return 0;
    }

    private void sendOneByOne(boolean ordered) throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = message(i);
            SendResult result = ordered
                ? producer.send(message, (queues, m, key) -> queues.get((Integer) key % queues.size()), i % ORDERED_STREAMS)
                : producer.send(message);
            print(i, result, result.getMsgId(), result.getOffsetMsgId(), result.getQueueOffset());
        }
    }

    private void sendBatches(int size) throws Exception {
        for (int first = 0; first < count; first += size) {
            List<Message> batch = new ArrayList<>();
            for (int i = first; i < Math.min(count, first + size); i++) {
                batch.add(message(i));
            }
            SendResult result = producer.send(batch);
            String[] ids = result.getMsgId().split(",");
            String[] offsetIds = result.getOffsetMsgId().split(",");
            for (int i = 0; i < batch.size(); i++) {
                print(first + i, result, ids[i], offsetIds[i], result.getQueueOffset() + i);
            }
        }
    }

    private void sendAsync() throws Exception {
        CountDownLatch answered = new CountDownLatch(count);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < count; i++) {
            int index = i;
            producer.send(message(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    print(index, result, result.getMsgId(), result.getOffsetMsgId(), result.getQueueOffset());
                    answered.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    failure.set(e);
                    answered.countDown();
                }
            });
        }
        if (!answered.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answered.getCount() + " sends were not answered");
        }
        if (failure.get() != null) {
            throw new IllegalStateException("an asynchronous send failed", failure.get());
        }
    }

    private void sendOneway() throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = message(i);
            producer.sendOneway(message);
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("index", i);
            fields.put("msgId", MessageClientIDSetter.getUniqID(message));
            fields.put("status", "ONEWAY");
            Output.line(fields);
        }
    }

    private Message message(int index) {
        String body = "message " + index + ": žluťoučký kůň, 消息, 🚀";
        String tag = index % 2 == 0 ? "TagA" : "TagB";
        Message message =
            new Message(options.text("topic"), tag, "key-" + index, body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("index", Integer.toString(index));
        message.putUserProperty("from", "java");
        for (String property : options.text("properties", "").split(",")) {
            if (!property.isEmpty()) {
                String[] pair = property.split("=", 2);
                message.putUserProperty(pair[0], pair[1]);
            }
        }
        return message;
    }

    private static void print(int index, SendResult result, String id, String offsetId, long queueOffset) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("index", index);
        fields.put("msgId", id);
        fields.put("offsetMsgId", offsetId);
        fields.put("queueId", result.getMessageQueue().getQueueId());
        fields.put("queueOffset", queueOffset);
        fields.put("status", result.getSendStatus().name());
        Output.line(fields);
    }
}
