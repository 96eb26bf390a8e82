package rocketd.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends {@code --count} messages within transactions, of which each first is committed, each second rolled back and
 * each third left undecided; or, with {@code --check}, waits until it was asked about that many, and commits them.
 */
final class Transactor implements TransactionListener {
    private static final long LIMIT_SECONDS = 60;

    private final Options options;
    private final CountDownLatch checks;

    Transactor(Options options) {
        this.options = options;
        checks = new CountDownLatch(options.has("check") ? options.number("count") : 0);
    }

    int run() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setTransactionListener(this);
        producer.start();
        try {
            if (options.has("check")) {
                // The broker learns of this producer by its heartbeat, which goes to the brokers of known topics.
                producer.fetchPublishMessageQueues(options.text("topic"));
                producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
                return checks.await(LIMIT_SECONDS, TimeUnit.SECONDS) ? 0 : 1;
            }
            for (int i = 0; i < options.number("count"); i++) {
                send(producer, options.number("first") + i, LocalTransactionState.values()[i % 3]);
            }
        } finally {
            producer.shutdown();
        }
        return 0;
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
        checks.countDown();
        return options.has("check") ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
    }
}
