import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;
import org.apache.rocketmq.tools.command.consumer.ConsumerSubCommand;
import org.apache.rocketmq.tools.command.message.DecodeMessageIdCommond;
import org.apache.rocketmq.tools.command.offset.GetConsumerStatusCommand;
import org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeOldCommand;

/**
 * Runs Apache's mqadmin, command after command, in one JVM, and beside it the producers and consumers that its commands
 * tell of. A line of JSON on standard input is a request, one on standard output its answer: what mqadmin printed to
 * "out" and "err", or what the request was for; "failure" when this program itself failed.
 */
public class Driver {
    private static final PrintStream OUT = System.out;
    private static final PrintStream ERR = System.err;
    private static final int LIMIT_MILLIS = 60_000;
    private static final long STEP_MILLIS = 20;

    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static final Map<String, Listener> CONSUMERS = new HashMap<>();
    private static String namesrv;

    public static void main(String[] arguments) throws Exception {
        namesrv = arguments[0];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject answer = new JSONObject();
            try {
                answer(JSON.parseObject(line), answer);
            } catch (Exception e) {
                answer.put("failure", e.toString());
                e.printStackTrace(ERR);
            }
            OUT.write((answer.toJSONString() + "\n").getBytes(StandardCharsets.UTF_8));
            OUT.flush();
        }
        System.exit(0); // clients leave threads behind
    }

    private static void answer(JSONObject request, JSONObject answer) throws Exception {
        switch (request.getString("do")) {
            case "mqadmin" -> mqadmin(request, answer);
            case "commands" -> answer.put("commands", commands());
            case "produce" -> produce(request.getString("group"));
            case "send" -> answer.put("sent", send(request));
            case "consume" -> consume(request);
            case "consumed" -> consumed(request);
            case "announce" -> announce(request.getString("group"), request.getString("topic"));
            case "stop" -> stop(request.getString("group"));
            default -> throw new IllegalArgumentException(request.toJSONString());
        }
    }

    // ------------------------------------------------------------ mqadmin

    /** The names of the commands that the program knows by itself. */
    private static List<String> commands() {
        return Program.fresh(false).stream().map(SubCommand::commandName).toList();
    }

    /**
     * One command. It is interrupted once "lines" lines are printed, when that is given: some commands never end. With
     * "unlisted" the four commands take part that the jar has, but the program does not list.
     */
    private static void mqadmin(JSONObject request, JSONObject answer) throws Exception {
        String[] words = request.getJSONArray("words").toArray(new String[0]);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        boolean unlisted = request.getBooleanValue("unlisted");
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        try {
            Integer lines = request.getInteger("lines");
            if (lines == null) {
                Program.run(words, unlisted);
            } else {
                Thread thread = new Thread(() -> Program.run(words, unlisted));
                thread.start();
                await(() -> out.toString(StandardCharsets.UTF_8).lines().count() >= lines);
                thread.interrupt();
                thread.join(LIMIT_MILLIS);
            }
        } finally {
            System.setOut(OUT);
            System.setErr(ERR);
        }
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
    }

    /** The program itself; it adds its commands to a static list each time it is run. */
    private static final class Program extends MQAdminStartup {
        static List<SubCommand> fresh(boolean unlisted) {
            subCommandList.clear();
            if (unlisted) {
                initCommand(new ConsumerSubCommand());
                initCommand(new GetConsumerStatusCommand());
                initCommand(new ResetOffsetByTimeOldCommand());
                initCommand(new DecodeMessageIdCommond());
            } else {
                initCommand();
            }
            return new ArrayList<>(subCommandList);
        }

        static void run(String[] words, boolean unlisted) {
            if (unlisted) {
                fresh(true);
            } else {
                subCommandList.clear();
            }
            main0(words, null);
        }
    }

    // ------------------------------------------------------------ clients

    private static DefaultMQProducer produce(String group) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(group);
        if (producer == null) {
            producer = new DefaultMQProducer(group);
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("of-" + group);
            producer.setPollNameServerInterval(1000);
            producer.setSendMsgTimeout(LIMIT_MILLIS);
            producer.start();
            PRODUCERS.put(group, producer);
        }
        return producer;
    }

    /** Sends messages one by one: [{topic, queue, body, tags, keys, delay, properties}]. */
    private static JSONArray send(JSONObject request) throws Exception {
        DefaultMQProducer producer = produce(request.getString("group"));
        JSONArray sent = new JSONArray();
        for (Object each : request.getJSONArray("messages")) {
            JSONObject wanted = (JSONObject) each;
            byte[] body = wanted.getString("body").getBytes(StandardCharsets.UTF_8);
            Message message = new Message(wanted.getString("topic"), wanted.getString("tags"), wanted.getString("keys"), body);
            if (wanted.containsKey("delay")) {
                message.setDelayTimeLevel(wanted.getIntValue("delay"));
            }
            wanted.getJSONObject("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
            int queue = wanted.getIntValue("queue");
            SendResult result = producer.send(message, (queues, m, id) -> queueOf(queues, (Integer) id), queue);
            JSONObject done = new JSONObject();
            done.put("id", result.getMsgId());
            done.put("offsetId", result.getOffsetMsgId());
            sent.add(done);
        }
        return sent;
    }

    private static MessageQueue queueOf(List<MessageQueue> queues, int id) {
        return queues.stream().filter(queue -> queue.getQueueId() == id).findFirst().orElseThrow();
    }

    private static void consume(JSONObject request) throws Exception {
        Listener listener = new Listener(request.getString("group"), request.getString("topic"));
        if (request.getBooleanValue("sql")) {
            listener.consumer.subscribe(listener.topic, MessageSelector.bySql(request.getString("expression")));
        } else {
            listener.consumer.subscribe(listener.topic, request.getString("expression"));
        }
        if (request.getBooleanValue("broadcast")) {
            listener.consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        listener.refuses = request.getBooleanValue("refuse");
        listener.consumer.registerMessageListener(listener);
        listener.consumer.start();
        CONSUMERS.put(request.getString("group"), listener);
    }

    /**
     * Has a consumer without subscriptions tell the brokers of a topic that its group is there. mqadmin's consumers do the
     * same when a command takes longer than a second. Returns once the group has its retry topic.
     */
    private static void announce(String group, String topic) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("announcing-" + group);
        consumer.start();
        try {
            MQClientInstance client = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
            client.updateTopicRouteInfoFromNameServer(topic);
            await(() -> {
                client.sendHeartbeatToAllBrokerWithLock();
                return hasRoute(client, MixAll.getRetryTopic(group));
            });
        } finally {
            consumer.shutdown();
        }
    }

    private static boolean hasRoute(MQClientInstance client, String topic) throws Exception {
        try {
            client.getMQClientAPIImpl().getTopicRouteInfoFromNameServer(topic, LIMIT_MILLIS);
            return true;
        } catch (MQClientException e) {
            return false; // not yet
        }
    }

    /**
     * Returns once so many different messages are consumed. Unless the consumer is broadcasting, it then has its retry
     * queue too, and the broker knows all that the group has read. The offset of the retry queue, which a consumer stores
     * by itself only after a pull of 15 seconds, is stored now: commands print the queues that have an offset.
     */
    private static void consumed(JSONObject request) throws Exception {
        Listener listener = CONSUMERS.get(request.getString("group"));
        DefaultMQPushConsumerImpl consumer = listener.consumer.getDefaultMQPushConsumerImpl();
        await(() -> {
            consumer.doRebalance(); // by itself only every 20 seconds
            return listener.seen.size() >= request.getIntValue("count");
        });
        if (listener.consumer.getMessageModel() == MessageModel.BROADCASTING) {
            return; // without a retry queue, and with offsets in its own file
        }
        String retryTopic = MixAll.getRetryTopic(request.getString("group"));
        await(() -> {
            consumer.doRebalance();
            return consumer.getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .anyMatch(queue -> queue.getTopic().equals(retryTopic));
        });
        for (MessageQueue queue : consumer.getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(retryTopic)) {
                consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, listener.consumer.maxOffset(queue), false);
            }
        }
        for (MessageQueue queue : listener.consumer.fetchSubscribeMessageQueues(listener.topic)) {
            long end = listener.consumer.maxOffset(queue);
            await(() -> {
                consumer.persistConsumerOffset();
                return consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE) == end;
            });
        }
    }

    private static void stop(String group) {
        if (PRODUCERS.containsKey(group)) {
            PRODUCERS.remove(group).shutdown();
        }
        if (CONSUMERS.containsKey(group)) {
            CONSUMERS.remove(group).consumer.shutdown();
        }
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(Condition condition) throws Exception {
        long end = System.nanoTime() + LIMIT_MILLIS * 1_000_000L;
        while (!condition.holds()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("waited in vain");
            }
            Thread.sleep(STEP_MILLIS);
        }
    }

    /** A push consumer that takes everything, or refuses all. */
    private static final class Listener implements MessageListenerConcurrently {
        final DefaultMQPushConsumer consumer;
        final String topic;
        final Set<String> seen = ConcurrentHashMap.newKeySet();
        boolean refuses;

        Listener(String group, String topic) {
            this.topic = topic;
            consumer = new DefaultMQPushConsumer(group);
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName("of-" + group);
            consumer.setPollNameServerInterval(1000);
            consumer.setMqClientApiTimeout(LIMIT_MILLIS);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        }

        @Override
        public ConsumeConcurrentlyStatus consumeMessage(
            List<MessageExt> messages,
            ConsumeConcurrentlyContext context) {
            messages.forEach(message -> seen.add(message.getMsgId()));
            context.setDelayLevelWhenNextConsume(-1); // to the dead letters at once
            return refuses ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }
}
