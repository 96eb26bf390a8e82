package rocketd.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends {@code --count} messages within transactions, of which each first is committed, each second rolled back and
 * each third left undecided; or, with {@code --check}, commits what it is asked about until the topic has that many.
 */
final class Transactor implements TransactionListener {
    private static final long LIMIT_NANOS = 60_000_000_000L;

    private final Options options;
    Transactor(Options options) {
        this.options = options;
    }

    int run() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setTransactionListener(this);
        producer.setSendMsgTimeout(Main.REQUEST_MILLIS);
        producer.start();
        producer.getDefaultMQProducerImpl().getmQClientFactory().getMQAdminImpl().setTimeoutMillis(Main.REQUEST_MILLIS);
        try {
            if (options.has("check")) {
                // The broker learns of this producer by its heartbeat, which goes to the brokers of known topics.
                producer.fetchPublishMessageQueues(options.text("topic"));
                producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
                return awaitMessages(producer) ? 0 : 1;
            }
            for (int i = 0; i < options.number("count"); i++) {
                send(producer, options.number("first") + i, LocalTransactionState.values()[i % 3]);
            }
        } finally {
            producer.shutdown();
        }
        return 0;
    }

    private boolean awaitMessages(TransactionMQProducer producer) throws Exception {
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(options.text("topic"));
        long deadline = System.nanoTime() + LIMIT_NANOS;
        while (System.nanoTime() < deadline) {
            long messages = 0;
            for (MessageQueue queue : queues) {
                messages += producer.maxOffset(queue);
            }
            if (messages >= options.number("count")) {
                return true;
            }
            Thread.sleep(50);
        }
        return false;
    }

    private void send(TransactionMQProducer producer, int index, LocalTransactionState state) throws Exception {
        Message message = new Message(
            options.text("topic"), "TagT", "key-" + index, ("within " + index).getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("index", Integer.toString(index));
        TransactionSendResult result = producer.sendMessageInTransaction(message, state);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("index", index);
        fields.put("msgId", result.getMsgId());
        fields.put("state", result.getLocalTransactionState().name());
        Output.line(fields);
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object state) {
        return (LocalTransactionState) state;
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("index", Integer.parseInt(message.getUserProperty("index")));
        fields.put("state", "CHECKED");
        Output.line(fields);
        return options.has("check") ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
    }
}
