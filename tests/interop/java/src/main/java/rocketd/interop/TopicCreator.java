package rocketd.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.topic.TopicValidator;

/** Creates a topic as an application does, through its producer, and waits until the name server knows it. */
final class TopicCreator {
    private static final int DEFAULT_QUEUES = 4;
    private static final long LIMIT_NANOS = 60_000_000_000L;

    private final Options options;

    TopicCreator(Options options) {
        this.options = options;
    }

    int run() throws Exception {
        String topic = options.text("topic");
        DefaultMQProducer producer = new DefaultMQProducer("TopicCreator");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.start();
        producer.getDefaultMQProducerImpl().getmQClientFactory().getMQAdminImpl().setTimeoutMillis(Main.REQUEST_MILLIS);
        try {
            producer.createTopic(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC, topic, options.number("queues", DEFAULT_QUEUES));
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("topic", topic);
            fields.put("queues", routedQueues(producer, topic));
            Output.line(fields);
            return 0;
        } finally {
            producer.shutdown();
        }
    }

    private static int routedQueues(DefaultMQProducer producer, String topic) throws Exception {
        long deadline = System.nanoTime() + LIMIT_NANOS;
        while (true) {
            try {
                return producer.fetchPublishMessageQueues(topic).size();
            } catch (MQClientException e) {
                if (System.nanoTime() > deadline) {
                    throw e;
                }
                Thread.sleep(50);
            }
        }
    }
}
