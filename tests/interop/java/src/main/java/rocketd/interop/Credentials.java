package rocketd.interop;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** What a client signs with: {@code --access-key} and {@code --secret-key}. */
final class Credentials {
    private Credentials() {
    }

    /** The hook that signs, or null when no key was given. */
    static RPCHook hook(Options options) {
        return options.has("access-key")
            ? new AclClientRPCHook(new SessionCredentials(options.text("access-key"), options.text("secret-key")))
            : null;
    }
}
