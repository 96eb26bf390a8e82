import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;

import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Answers questions about filters as Apache's own classes do, one line each: "sql EXPRESSION PROPERTIES" with what the
 * expression is for them, "bloom F N KEY" with k, m and the positions of the key. Texts come in base64, "-" for none.
 */
public class Evaluator {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            out.println(words[0].equals("sql")
                ? evaluate(text(words[1]), text(words[2]))
                : bloom(Integer.parseInt(words[1]), Integer.parseInt(words[2]), text(words[3])));
            out.flush();
        }
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
