package rocketd.interop;

/**
 * The interop ring's Java program: {@code send}, {@code consume} and {@code create-topic} with Apache's own client.
 *
 * <p>Beside what all programs of the ring take: {@code send} has {@code --batch K}, {@code --async}, {@code --oneway}
 * and {@code --order} (each of four streams to one queue), {@code consume} has {@code --order} (an orderly listener),
 * {@code --fail-first} (each message is refused the first time it comes) and {@code --sql EXPRESSION} in the place of
 * {@code --tag}, both have {@code --access-key K} and {@code --secret-key S}, {@code create-topic} has {@code --queues N}.
 * {@code fill}, {@code load}, {@code look-up} and {@code transact} write and read what a store has to keep:
 * {@link StoreWriter}, {@link StoreLoader}, {@link StoreReader} and {@link Transactor} say how.
 */
public final class Main {
    /** For one request: machines are slow at times. */
    static final int REQUEST_MILLIS = 30_000;

    private Main() {
    }

    public static void main(String[] args) {
        int status = 2;
        try {
            status = run(new Options(args));
        } catch (Exception e) {
            e.printStackTrace();
        }
        System.exit(status); // in every case: a client that failed to start leaves threads behind
    }

    private static int run(Options options) throws Exception {
        return switch (options.command) {
            case "send" -> new Sender(options).run();
            case "consume" -> new Receiver(options).run();
            case "create-topic" -> new TopicCreator(options).run();
            case "fill" -> new StoreWriter(options).run();
            case "load" -> new StoreLoader(options).run();
            case "look-up" -> new StoreReader(options).run();
            case "transact" -> new Transactor(options).run();
            default -> throw new IllegalArgumentException("unknown command " + options.command);
        };
    }
}
