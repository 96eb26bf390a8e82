import java.beans.Introspector;
import java.beans.PropertyDescriptor;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import org.apache.rocketmq.client.common.ThreadLocalIndex;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.latency.LatencyFaultTolerance;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;

/**
 * Applies the rules of Apache's own client classes, one JSON object a line: "do" is "allocate", "hash", "choose" or
 * "defaults". Queues are arrays of topic, broker and number.
 */
public class Rules {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject asked = JSON.parseObject(line);
            Object answer;
            switch (asked.getString("do")) {
                case "allocate":
                    answer = allocate(asked);
                    break;
                case "hash":
                    answer = hash(asked);
                    break;
                case "defaults":
                    answer = defaults(asked.getString("class"));
                    break;
                default:
                    answer = choose(asked);
            }
            out.println(JSON.toJSONString(answer, SerializerFeature.BrowserCompatible, SerializerFeature.WriteMapNullValue));
            out.flush();
        }
    }

    /** What the getters of a client say that was told nothing: numbers, truths, texts and names of constants. */
    private static Object defaults(String name) throws Exception {
        Object client = Class.forName(name).getConstructor(String.class).newInstance("G");
        JSONObject values = new JSONObject();
        for (PropertyDescriptor property : Introspector.getBeanInfo(client.getClass()).getPropertyDescriptors()) {
            Method getter = property.getReadMethod();
            if (getter == null || getter.getParameterCount() > 0) {
                continue;
            }
            Class<?> type = getter.getReturnType();
            if (type.isPrimitive() || type == String.class || type.isEnum()) {
                try {
                    Object value = getter.invoke(client);
                    values.put(property.getName(), type.isEnum() ? String.valueOf(value) : value);
                } catch (InvocationTargetException e) {
                    // What is asked of the cluster is no default.
                }
            }
        }
        return values;
    }

    /** The name of a strategy and the share of a client, once the lists are sorted if so wished; null when refused. */
    private static Object allocate(JSONObject asked) {
        List<MessageQueue> queues = queues(asked.getJSONArray("queues"));
        List<String> clients = texts(asked.getJSONArray("clients"));
        if (asked.getBooleanValue("sorted")) {
            Collections.sort(queues);
            Collections.sort(clients);
        }
        AllocateMessageQueueStrategy strategy = strategy(asked.getJSONObject("strategy"));
        List<MessageQueue> share;
        try {
            share = strategy.allocate("G", asked.getString("client"), queues, clients);
        } catch (IllegalArgumentException e) {
            share = null;
        }
        return array(strategy.getName(), share == null ? null : arrays(share));
    }

    private static AllocateMessageQueueStrategy strategy(JSONObject made) {
        switch (made.getString("name")) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONFIG":
                AllocateMessageQueueByConfig configured = new AllocateMessageQueueByConfig();
                configured.setMessageQueueList(queues(made.getJSONArray("queues")));
                return configured;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(texts(made.getJSONArray("rooms"))));
                return rooms;
            case "CONSISTENT_HASH":
                if (!made.containsKey("virtual_nodes")) {
                    return new AllocateMessageQueueConsistentHash();
                }
                int size = made.getIntValue("ring");
                return new AllocateMessageQueueConsistentHash(
                    made.getIntValue("virtual_nodes"), size == 0 ? null : key -> Math.floorMod(key.hashCode(), size));
            default:
                JSONObject brokers = made.getJSONObject("brokers");
                JSONObject clients = made.getJSONObject("clients");
                return new AllocateMachineRoomNearby(
                    strategy(made.getJSONObject("inner")),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return brokers.getString(queue.getBrokerName());
                        }

                        @Override
                        public String consumerDeployIn(String client) {
                            return clients.getString(client);
                        }
                    });
        }
    }

    /** The place in a list of so many queues that a key goes to. */
    private static Object hash(JSONObject asked) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < asked.getIntValue("count"); i++) {
            queues.add(new MessageQueue("T", "b", i));
        }
        // Whole numbers are read as Integer, or as Long if they are too large for that.
        return new SelectMessageQueueByHash().select(queues, null, asked.get("key")).getQueueId();
    }

    /**
     * What each step of a producer's life gives: "update" of a broker the time from which it is available; "available"
     * whether a broker is; "select" the queue for a message. Each comes with the times before and after. "age" lets time
     * pass, for the table of faults alone.
     */
    private static Object choose(JSONObject asked) throws Exception {
        MQFaultStrategy strategy = new MQFaultStrategy();
        strategy.setSendLatencyFaultEnable(asked.getBooleanValue("enabled"));
        @SuppressWarnings("unchecked")
        LatencyFaultTolerance<String> faults = (LatencyFaultTolerance<String>) field(strategy, "latencyFaultTolerance");
        begin((ThreadLocalIndex) field(faults, "whichItemWorst"), asked.getIntValue("half_start"));
        Map<?, ?> items = (Map<?, ?>) field(faults, "faultItemTable");
        ThreadLocalIndex turn = new ThreadLocalIndex();
        begin(turn, asked.getIntValue("start"));
        TopicRouteData route = new TopicRouteData();
        route.setQueueDatas(new ArrayList<>());
        for (Object entry : asked.getJSONArray("write_queue_nums")) {
            QueueData data = new QueueData();
            data.setBrokerName(((JSONArray) entry).getString(0));
            data.setWriteQueueNums(((JSONArray) entry).getIntValue(1));
            route.getQueueDatas().add(data);
        }
        JSONArray given = new JSONArray();
        for (Object entry : asked.getJSONArray("steps")) {
            JSONArray step = (JSONArray) entry;
            String broker = step.getString(1);
            Object got = null;
            long before = System.currentTimeMillis();
            switch (step.getString(0)) {
                case "update":
                    strategy.updateFaultItem(broker, step.getLongValue(2), step.getBooleanValue(3));
                    Object item = items.get(broker);
                    got = item == null ? null : method(item, "getStartTimestamp").invoke(item);
                    break;
                case "available":
                    got = faults.isAvailable(broker);
                    break;
                case "select":
                    // Its list is new each time: choosing may write into the queues.
                    TopicPublishInfo info = new TopicPublishInfo();
                    info.setMessageQueueList(queues(asked.getJSONArray("queues")));
                    info.setTopicRouteData(route);
                    info.setSendWhichQueue(turn);
                    got = array(strategy.selectOneMessageQueue(info, broker));
                    break;
                default:
                    for (Object old : items.values()) {
                        long start = (Long) method(old, "getStartTimestamp").invoke(old);
                        method(old, "setStartTimestamp", long.class).invoke(old, start - step.getLongValue(1));
                    }
            }
            given.add(array(before, System.currentTimeMillis(), got));
        }
        return given;
    }

    private static void begin(ThreadLocalIndex index, int start) throws Exception {
        @SuppressWarnings("unchecked")
        ThreadLocal<Integer> value = (ThreadLocal<Integer>) field(index, "threadLocalIndex");
        value.set(start);
    }

    private static Object field(Object owner, String name) throws Exception {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }

    private static Method method(Object owner, String name, Class<?>... parameters) throws Exception {
        Method method = owner.getClass().getDeclaredMethod(name, parameters);
        method.setAccessible(true);
        return method;
    }

    private static List<String> texts(JSONArray array) {
        return new ArrayList<>(array.toJavaList(String.class));
    }

    private static List<MessageQueue> queues(JSONArray arrays) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Object array : arrays) {
            JSONArray queue = (JSONArray) array;
            queues.add(new MessageQueue(queue.getString(0), queue.getString(1), queue.getIntValue(2)));
        }
        return queues;
    }

    private static JSONArray arrays(List<MessageQueue> queues) {
        JSONArray arrays = new JSONArray();
        for (MessageQueue queue : queues) {
            arrays.add(array(queue));
        }
        return arrays;
    }

    private static JSONArray array(MessageQueue queue) {
        return array(queue.getTopic(), queue.getBrokerName(), queue.getQueueId());
    }

    private static JSONArray array(Object... values) {
        JSONArray array = new JSONArray();
        Collections.addAll(array, values);
        return array;
    }
}
