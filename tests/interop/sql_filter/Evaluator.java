import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Answers questions about filters as Apache's own classes do, one line each: "sql EXPRESSION PROPERTIES" with what the
 * expression is for them, "bloom F N KEY" with k, m and the positions of the key. A table of groups' filters is made empty
 * by "manager", filled by "register GROUP" with TOPIC TYPE VERSION EXPRESSION of each subscription and "unregister GROUP",
 * and asked by "state TOPIC GROUP". Texts come in base64, "-" for none.
 */
public class Evaluator {
    private static ConsumerFilterManager manager;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ")));
            out.flush();
        }
    }

    private static String answer(String[] words) {
        switch (words[0]) {
            case "sql":
                return evaluate(text(words[1]), text(words[2]));
            case "bloom":
                return bloom(Integer.parseInt(words[1]), Integer.parseInt(words[2]), text(words[3]));
            case "manager":
                manager = new ConsumerFilterManager();
                return "";
            case "register":
                manager.register(text(words[1]), subscriptions(words));
                return "";
            case "unregister":
                manager.unRegister(text(words[1]));
                return "";
            case "state":
                ConsumerFilterData data = manager.get(text(words[1]), text(words[2]));
                return data == null ? "none" : data.getClientVersion() + " " + data.isDead() + " " + data.getExpression();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static List<SubscriptionData> subscriptions(String[] words) {
        List<SubscriptionData> subscriptions = new ArrayList<>();
        for (int i = 2; i < words.length; i += 4) {
            SubscriptionData subscription = new SubscriptionData(text(words[i]), text(words[i + 3]));
            subscription.setExpressionType(text(words[i + 1]));
            subscription.setSubVersion(Long.parseLong(words[i + 2]));
            subscriptions.add(subscription);
        }
        return subscriptions;
    }

    private static String evaluate(String expression, String properties) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(expression);
        } catch (MQFilterException e) {
            return "refused";
        }
        try {
            return String.valueOf(
                compiled.evaluate(new MessageEvaluationContext(MessageDecoder.string2messageProperties(properties))));
        } catch (Throwable e) {
            return "error";
        }
    }

    private static String bloom(int errorRate, int expected, String key) {
        BloomFilter filter = BloomFilter.createByFn(errorRate, expected);
        return filter.getK() + " " + filter.getM() + " " + Arrays.toString(filter.calcBitPositions(key)).replace(" ", "");
    }

    private static String text(String word) {
        return word.equals("-") ? "" : new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
