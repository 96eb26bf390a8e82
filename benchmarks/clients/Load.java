import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Apache's Java client under the loads that load.py describes: the same lines, the same answers, the same messages. */
public class Load {
    private static final byte[] BODY = body();
    private static final int WINDOW = 64;
    private static final int BATCH = 32;
    private static final String TOPIC = "ClientBench";

    private final String namesrv;
    private final String name;
    private final DefaultMQProducer producer;
    private int groups;

    private Load(String namesrv, String name) throws Exception {
        this.namesrv = namesrv;
        this.name = name;
        producer = new DefaultMQProducer(name + "_producer");
        producer.setNamesrvAddr(namesrv);
        producer.start();
    }

    public static void main(String[] arguments) throws Exception {
        Load load = new Load(arguments[0], arguments[1]);
        System.out.println("{\"ready\": true}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            long begin = System.nanoTime();
            try {
                long count = load.run(line.split(" "));
                double seconds = (System.nanoTime() - begin) / 1e9;
                System.out.println("{\"ops\": " + count + ", \"seconds\": " + seconds + "}");
            } catch (Exception e) {
                System.out.println("{\"error\": \"" + e.toString().replaceAll("[\"\\\\\\s]+", " ") + "\"}");
            }
        }
        System.exit(0);
    }

    private long run(String[] words) throws Exception {
        switch (words[0]) {
            case "send":
                return send(Double.parseDouble(words[1]));
            case "window":
                return window(Double.parseDouble(words[1]));
            case "batch":
                return batch(Double.parseDouble(words[1]));
            default:
                return consume(words[1], Long.parseLong(words[2]));
        }
    }

    private long send(double seconds) throws Exception {
        long count = 0;
        for (long end = end(seconds); System.nanoTime() < end; count++) {
            check(producer.send(new Message(TOPIC, BODY)));
        }
        return count;
    }

    private long window(double seconds) throws Exception {
        Semaphore free = new Semaphore(WINDOW);
        AtomicLong sent = new AtomicLong();
        AtomicReference<Throwable> failed = new AtomicReference<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent.incrementAndGet();
                free.release();
            }

            @Override
            public void onException(Throwable e) {
                failed.set(e);
                free.release();
            }
        };
        for (long end = end(seconds); System.nanoTime() < end; ) {
            free.acquire();
            producer.send(new Message(TOPIC, BODY), callback);
        }
        free.acquire(WINDOW);
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
        return sent.get();
    }

    private long batch(double seconds) throws Exception {
        long count = 0;
        for (long end = end(seconds); System.nanoTime() < end; count += BATCH) {
            List<Message> messages = new ArrayList<>(BATCH);
            for (int i = 0; i < BATCH; i++) {
                messages.add(new Message(TOPIC, BODY));
            }
            check(producer.send(messages));
        }
        return count;
    }

    private long consume(String topic, long wanted) throws Exception {
        AtomicLong left = new AtomicLong(wanted);
        CountDownLatch enough = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(name + "_" + groups++);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (left.addAndGet(-messages.size()) <= 0) {
                enough.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        enough.await();
        consumer.shutdown();
        return wanted;
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    private static long end(double seconds) {
        return System.nanoTime() + (long) (seconds * 1e9);
    }

    private static byte[] body() {
        byte[] body = new byte[1024];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) (32 + i % 64);
        }
        return body;
    }
}
