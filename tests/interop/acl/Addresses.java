import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.acl.plain.PlainAccessResource;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategy;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory;

/**
 * Which peers white addresses mean to Apache's own classes.
 *
 * <p>Standard input: peers separated by blanks in the first line, then one white address a line. Standard output, for
 * each white address: a digit for each peer, 1 where it is meant, or what refuses the address. A peer at which Apache's
 * classes throw is an x.
 */
public final class Addresses {
    private Addresses() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<String> peers = List.of(input.readLine().split(" "));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.append(meant(line, peers)).append('\n');
        }
        System.out.print(output);
        System.out.flush();
        System.exit(0);
    }

    private static String meant(String address, List<String> peers) {
        RemoteAddressStrategy strategy;
        try {
            strategy = new RemoteAddressStrategyFactory().getRemoteAddressStrategy(address);
        } catch (RuntimeException e) {
            return "refused";
        }
        StringBuilder digits = new StringBuilder();
        for (String peer : peers) {
            PlainAccessResource resource = new PlainAccessResource();
            resource.setWhiteRemoteAddress(peer);
            try {
                digits.append(strategy.match(resource) ? '1' : '0');
            } catch (RuntimeException e) {
                digits.append('x');
            }
        }
        return digits.toString();
    }
}
