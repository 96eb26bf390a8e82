package rocketd.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** One JSON object a line on standard output, in UTF-8, from any thread. */
final class Output {
    private static final PrintStream STDOUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Output() {
    }

    static synchronized void line(Map<String, Object> fields) {
        STDOUT.println(JSON.toJSONString(fields, SerializerFeature.WriteMapNullValue));
    }
}
