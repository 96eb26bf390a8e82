import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.message.MessageType;

/** Has Apache's encoder and decoder fill in the answers of records-4.9.7.json, which is its only argument. */
public class TraceRecords {
    public static void main(String[] arguments) throws Exception {
        Path file = Path.of(arguments[0]);
        JSONObject table = JSON.parseObject(Files.readString(file), com.alibaba.fastjson.parser.Feature.OrderedField);
        for (Object item : table.getJSONArray("written")) {
            JSONObject entry = (JSONObject) item;
            TraceTransferBean bean = TraceDataEncoder.encoderFromContextBean(context(entry.getJSONObject("context")));
            entry.put("data", bean.getTransData());
            entry.put("keys", new TreeSet<>(bean.getTransKey()));
        }
        for (Object item : table.getJSONArray("read")) {
            JSONObject entry = (JSONObject) item;
            entry.remove("contexts");
            entry.remove("refused");
            try {
                JSONArray contexts = new JSONArray();
                for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(entry.getString("data"))) {
                    contexts.add(described(context));
                }
                entry.put("contexts", contexts);
            } catch (RuntimeException error) {
                entry.put("refused", error.getClass().getSimpleName());
            }
        }
        String text = JSON.toJSONString(table, SerializerFeature.PrettyFormat, SerializerFeature.WriteMapNullValue);
        Files.write(file, (text.replace("\t", "  ") + "\n").getBytes(StandardCharsets.UTF_8));
    }

    /** A member that is not given keeps Apache's default. */
    private static TraceContext context(JSONObject given) {
        TraceContext context = new TraceContext();
        context.setTraceType(TraceType.valueOf(given.getString("trace_type")));
        context.setTimeStamp(given.getLongValue("timestamp"));
        if (given.containsKey("region")) {
            context.setRegionId(given.getString("region"));
        }
        if (given.containsKey("group")) {
            context.setGroupName(given.getString("group"));
        }
        if (given.containsKey("request_id")) {
            context.setRequestId(given.getString("request_id"));
        }
        if (given.containsKey("success")) {
            context.setSuccess(given.getBooleanValue("success"));
        }
        context.setCostTime(given.getIntValue("cost_time"));
        context.setContextCode(given.getIntValue("context_code"));
        String channel = given.getString("access_channel");
        context.setAccessChannel(channel == null ? AccessChannel.LOCAL : AccessChannel.valueOf(channel));
        List<TraceBean> beans = new ArrayList<>();
        for (Object item : given.getJSONArray("beans")) {
            beans.add(bean((JSONObject) item));
        }
        context.setTraceBeans(beans);
        return context;
    }

    private static TraceBean bean(JSONObject given) {
        TraceBean bean = new TraceBean();
        bean.setMsgId(given.getString("msg_id"));
        bean.setMsgType(MessageType.values()[given.getIntValue("message_type")]);
        if (given.containsKey("topic")) {
            bean.setTopic(given.getString("topic"));
        }
        if (given.containsKey("offset_msg_id")) {
            bean.setOffsetMsgId(given.getString("offset_msg_id"));
        }
        if (given.containsKey("tags")) {
            bean.setTags(given.getString("tags"));
        }
        if (given.containsKey("keys")) {
            bean.setKeys(given.getString("keys"));
        }
        if (given.containsKey("store_host")) {
            bean.setStoreHost(given.getString("store_host"));
        }
        if (given.containsKey("transaction_state")) {
            bean.setTransactionState(LocalTransactionState.valueOf(given.getString("transaction_state")));
        }
        bean.setRetryTimes(given.getIntValue("retry_times"));
        bean.setBodyLength(given.getIntValue("body_length"));
        bean.setTransactionId(given.getString("transaction_id"));
        bean.setFromTransactionCheck(given.getBooleanValue("from_transaction_check"));
        return bean;
    }

    /** What the record's type has; the rest are defaults, some of them of the machine. */
    private static JSONObject described(TraceContext context) {
        TraceType type = context.getTraceType();
        TraceBean bean = context.getTraceBeans().get(0);
        boolean sent = type == TraceType.Pub || type == TraceType.EndTransaction;
        JSONObject told = new JSONObject(true);
        JSONObject what = new JSONObject(true);
        told.put("trace_type", type.name());
        if (type != TraceType.SubAfter || !context.getGroupName().isEmpty()) {
            told.put("timestamp", context.getTimeStamp());
        }
        told.put("region", context.getRegionId());
        told.put("group", context.getGroupName());
        told.put("cost_time", context.getCostTime());
        told.put("success", context.isSuccess());
        told.put("context_code", context.getContextCode());
        if (!sent) {
            told.put("request_id", context.getRequestId());
        }
        told.put("beans", new JSONArray(List.of(what)));
        what.put("msg_id", bean.getMsgId());
        what.put("topic", bean.getTopic());
        what.put("offset_msg_id", bean.getOffsetMsgId());
        what.put("tags", bean.getTags());
        what.put("keys", bean.getKeys());
        what.put("retry_times", bean.getRetryTimes());
        what.put("body_length", bean.getBodyLength());
        what.put("message_type", bean.getMsgType() == null ? 0 : bean.getMsgType().ordinal());
        what.put("from_transaction_check", bean.isFromTransactionCheck());
        if (sent) {
            what.put("store_host", bean.getStoreHost());
        }
        String client = bean.getClientHost();
        if (client != null && client.startsWith("client-")) {
            what.put("client_host", client);
        }
        if (type == TraceType.EndTransaction) {
            what.put("transaction_id", bean.getTransactionId());
            what.put("transaction_state", bean.getTransactionState().name());
        }
        return told;
    }
}
