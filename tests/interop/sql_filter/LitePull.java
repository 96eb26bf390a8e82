import java.util.TreeSet;

import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Pulls by an SQL92 expression, which then stands in every request, until so many distinct messages have come, and prints
 * their numbers: NAMESRV TOPIC GROUP EXPRESSION COUNT.
 */
public class LitePull {
    private static final long LIMIT_NANOS = 60_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], MessageSelector.bySql(arguments[3]));
        consumer.start();
        TreeSet<Integer> numbers = new TreeSet<>();
        long end = System.nanoTime() + LIMIT_NANOS;
        while (numbers.size() < Integer.parseInt(arguments[4]) && System.nanoTime() < end) {
            for (MessageExt message : consumer.poll()) {
                numbers.add(Integer.valueOf(message.getUserProperty("index")));
            }
        }
        System.out.println(numbers);
        System.exit(0); // the client leaves threads behind
    }
}
