import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * Consumes in two groups, one that begins where the client has it by default, at the last offset, and one that asks for the
 * first: NAMESRV TOPIC LAST-GROUP FIRST-GROUP COUNT. Says when each has got so many messages, and ends with
 * its input.
 */
public class TwoGroups {
    public static void main(String[] arguments) throws Exception {
        CountDownLatch missing = new CountDownLatch(2 * Integer.parseInt(arguments[4]));
        start(arguments[0], arguments[1], new DefaultMQPushConsumer(arguments[2]), missing);
        DefaultMQPushConsumer first = new DefaultMQPushConsumer(arguments[3]);
        first.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        start(arguments[0], arguments[1], first, missing);
        boolean all = missing.await(90, TimeUnit.SECONDS);
        System.out.println(all ? "all" : missing.getCount() + " are missing");
        while (System.in.read() >= 0) {
            continue;
        }
        System.exit(0); // the client leaves threads behind
    }

    private static void start(String namesrv, String topic, DefaultMQPushConsumer consumer, CountDownLatch missing)
        throws Exception {
        consumer.setNamesrvAddr(namesrv);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            missing.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
