package rocketd.interop;

import java.util.HashMap;
import java.util.Map;

/** The command line: a command, and {@code --name value} or {@code --name} (a flag) after it. */
final class Options {
    final String command;
    private final Map<String, String> given = new HashMap<>();

    Options(String[] args) {
        if (args.length == 0) {
            throw new IllegalArgumentException("usage: send|consume|create-topic --namesrv HOST:PORT --topic T ...");
        }
        command = args[0];
        for (int i = 1; i < args.length; i++) {
            if (!args[i].startsWith("--")) {
                throw new IllegalArgumentException("unexpected argument " + args[i]);
            }
            boolean flag = i + 1 == args.length || args[i + 1].startsWith("--");
            given.put(args[i].substring(2), flag ? "true" : args[++i]);
        }
    }

    boolean has(String name) {
        return given.containsKey(name);
    }

    String text(String name) {
        String value = given.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return given.getOrDefault(name, otherwise);
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    int number(String name, int otherwise) {
        return has(name) ? number(name) : otherwise;
    }
}
