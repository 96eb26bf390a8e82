package rocketd.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends from {@code --threads} threads, one of which sends batches, until it is killed or nothing is answered any more;
 * prints what was acknowledged, as {@link StoreWriter} does.
 */
final class StoreLoader {
    private static final int BATCH = 8;

    private final Options options;
    private final AtomicInteger next;

    StoreLoader(Options options) {
        this.options = options;
        next = new AtomicInteger(options.number("first"));
    }

    int run() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(options.text("group"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(Main.REQUEST_MILLIS);
        producer.setRetryTimesWhenSendFailed(0); // a message that is sent again may be stored twice
        producer.start();
        try {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < options.number("threads"); i++) {
                int size = i == 0 ? BATCH : 1;
                Thread thread = new Thread(() -> send(producer, size));
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
        } finally {
            producer.shutdown();
        }
        return 0;
    }

    private void send(DefaultMQProducer producer, int size) {
        try {
            while (true) {
                if (size == 1) {
                    Message message = StoreWriter.message(options.text("topic"), next.getAndIncrement());
                    StoreWriter.print("load", message, producer.send(message));
                } else {
                    List<Message> batch = new ArrayList<>();
                    for (int i = 0; i < size; i++) {
                        batch.add(StoreWriter.message(options.text("topic"), next.getAndIncrement()));
                    }
                    StoreWriter.printBatch("load", batch, producer.send(batch));
                }
            }
        } catch (Exception e) {
            e.printStackTrace(); // the broker is gone
        }
    }
}
