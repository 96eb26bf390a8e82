import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.ConsumeMessageDirectlyResult;
import org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Clients that do what they are told, one line of standard input for each command: a number, its name and its arguments,
 * separated by tabs. Every line of standard output is a JSON object: the answer to a command, by its number, or a message
 * that a consumer got. The only argument is the name server.
 */
public class Features {
    private static final PrintStream STDOUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    /** For one request: machines are slow at times. */
    private static final int LIMIT_MILLIS = 20_000;

    private final String namesrv;
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(LIMIT_MILLIS);

    Features(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] arguments) throws Exception {
        Features features = new Features(arguments[0]);
        features.admin.setNamesrvAddr(arguments[0]);
        features.admin.setInstanceName("admin");
        features.admin.start();
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            workers.execute(() -> features.answer(words));
        }
        System.exit(0); // clients leave threads behind
    }

    private void answer(String[] words) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("number", Integer.parseInt(words[0]));
        try {
            answer.put("result", execute(words[1], Arrays.copyOfRange(words, 2, words.length)));
        } catch (Throwable e) {
            answer.put("error", e.toString());
        }
        print(answer);
    }

    private static synchronized void print(Map<String, Object> fields) {
        STDOUT.println(JSON.toJSONString(fields));
    }

    private Object execute(String command, String[] words) throws Exception {
        switch (command) {
            case "producer": return producer(words[0], words[1], words[2].equals("trace"));
            case "send": return send(words[0], words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            case "request": return request(words[0], words[1], words[2], Long.parseLong(words[3]));
            case "consumer": return consumer(words);
            case "id": return idOf(words[0]);
            case "stop": return stop(words[0]);
            case "running-info": return runningInfo(words[0], words[1]);
            case "consume-directly": return consumeDirectly(words[0], words[1], words[2]);
            case "reset": return offsets(admin.resetOffsetByTimestamp(
                words[0], words[1], Long.parseLong(words[2]), Boolean.parseBoolean(words[3])));
            case "status": return status(words[0], words[1], words[2]);
            case "group": return group(words[0], words[1], words[2].contains("consume"), words[2].contains("broadcast"));
            case "clone": admin.cloneGroupOffset(words[0], words[1], words[2], true); return "";
            case "trace": return trace(words[0]);
            default: throw new IllegalArgumentException(command);
        }
    }

    // ------------------------------------------------------------ producers

    private Object producer(String name, String group, boolean traced) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, traced);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(name);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setPollNameServerInterval(1000);
        producer.setSendMsgTimeout(LIMIT_MILLIS);
        producer.start();
        producers.put(name, producer);
        return "";
    }

    /** Sends to a queue of that number, or to any for -1. */
    private Object send(String name, String topic, String body, int level, int queue) throws Exception {
        Message message = new Message(topic, "Tag", "key-" + body, body.getBytes(StandardCharsets.UTF_8));
        if (level > 0) {
            message.setDelayTimeLevel(level);
        }
        DefaultMQProducer producer = producers.get(name);
        SendResult result = queue < 0 ? producer.send(message)
            : producer.send(message, (queues, m, argument) -> queues.stream()
                .filter(q -> q.getQueueId() == queue).findFirst().orElseThrow(), null);
        Map<String, Object> sent = new LinkedHashMap<>();
        sent.put("status", result.getSendStatus().name());
        sent.put("msgId", result.getMsgId());
        sent.put("offsetMsgId", result.getOffsetMsgId());
        sent.put("at", System.currentTimeMillis());
        return sent;
    }

    private Object request(String name, String topic, String body, long limit) throws Exception {
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        return new String(producers.get(name).request(message, limit).getBody(), StandardCharsets.UTF_8);
    }

    // ------------------------------------------------------------ consumers

    /** NAME GROUP TOPIC EXPRESSION MODE MODEL, the mode being accept, order, reply or refuse. */
    private Object consumer(String[] words) throws Exception {
        String name = words[0];
        String mode = words[4];
        boolean traced = words.length > 6 && words[6].equals("trace");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[1], traced);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPollNameServerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMessageModel(MessageModel.valueOf(words[5]));
        consumer.subscribe(words[2], words[3]);
        if (mode.equals("order")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> tell(name, message));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            if (mode.equals("refuse")) {
                consumer.setMaxReconsumeTimes(2);
            }
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(mode.equals("refuse") ? 1 : 0);
                messages.forEach(message -> tell(name, message));
                if (mode.equals("reply")) {
                    messages.forEach(message -> reply(name, message));
                }
                return mode.equals("refuse") ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        consumers.put(name, consumer);
        return "";
    }

    private String idOf(String name) {
        return consumers.get(name).getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    private static void tell(String name, MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("consumer", name);
        fields.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        fields.put("topic", message.getTopic());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("at", System.currentTimeMillis());
        fields.put("properties", message.getProperties());
        print(fields);
    }

    /** The producer of the consumer's own name sends the reply. */
    private void reply(String name, MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("consumer", name);
        try {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            Message reply = MessageUtil.createReplyMessage(message, ("re: " + body).getBytes(StandardCharsets.UTF_8));
            fields.put("replied", producers.get(name).send(reply, 3000).getSendStatus().name());
        } catch (Exception e) {
            fields.put("replied", e.toString());
        }
        print(fields);
    }

    private Object stop(String name) {
        if (consumers.containsKey(name)) {
            consumers.remove(name).shutdown();
        }
        if (producers.containsKey(name)) {
            producers.remove(name).shutdown();
        }
        return "";
    }

    // ------------------------------------------------------------ administration

    private Object runningInfo(String group, String clientId) throws Exception {
        ConsumerRunningInfo info = admin.getConsumerRunningInfo(group, clientId, true);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("clientVersion", info.getProperties().getProperty(ConsumerRunningInfo.PROP_CLIENT_VERSION));
        Map<String, Long> queues = new TreeMap<>();
        info.getMqTable().forEach((queue, state) -> queues.put(place(queue), state.getCommitOffset()));
        fields.put("queues", queues);
        fields.put("hasStack", info.getJstack() != null && info.getJstack().contains("Thread"));
        return fields;
    }

    private Object consumeDirectly(String group, String clientId, String messageId) throws Exception {
        ConsumeMessageDirectlyResult result = admin.consumeMessageDirectly(group, clientId, messageId);
        return result.getConsumeResult().name();
    }

    private Object group(String broker, String group, boolean consume, boolean broadcast) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        config.setConsumeEnable(consume);
        config.setConsumeBroadcastEnable(broadcast);
        long before = System.currentTimeMillis();
        admin.createAndUpdateSubscriptionGroupConfig(broker, config);
        return before;
    }

    private Object status(String topic, String group, String clientId) throws Exception {
        Map<String, Object> all = new TreeMap<>();
        admin.getConsumeStatus(topic, group, clientId).forEach((id, table) -> all.put(id, offsets(table)));
        return all;
    }

    private static Map<String, Long> offsets(Map<MessageQueue, Long> table) {
        Map<String, Long> byPlace = new TreeMap<>();
        table.forEach((queue, offset) -> byPlace.put(place(queue), offset));
        return byPlace;
    }

    private static String place(MessageQueue queue) {
        return queue.getTopic() + "/" + queue.getQueueId();
    }

    /** As queryMsgTraceById does: the trace records that have the message's id as their key. */
    private Object trace(String messageId) throws Exception {
        QueryResult found = admin.queryMessage("RMQ_SYS_TRACE_TOPIC", messageId, 64, 0, Long.MAX_VALUE);
        List<String> kinds = new java.util.ArrayList<>();
        for (MessageExt message : found.getMessageList()) {
            String data = new String(message.getBody(), StandardCharsets.UTF_8);
            for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(data)) {
                if (context.getTraceBeans().get(0).getMsgId().equals(messageId)) {
                    kinds.add(context.getTraceType() + " " + context.isSuccess());
                }
            }
        }
        java.util.Collections.sort(kinds);
        return kinds;
    }
}
