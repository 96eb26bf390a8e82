"""The groups of commands that need a client. Their modules are imported to run a command, not for the help of a group."""

from rocketd.common.command_line.commands import LazyGroup

broker_group = LazyGroup(
    "broker",
    {
        "run": ("rocketd.tools.servers.run_servers:run_broker_command", "Run a broker in the foreground."),
        "list": ("rocketd.tools.cluster.brokers:list_command", "List the brokers with their version and load."),
        "show": ("rocketd.tools.cluster.brokers:show_command", "Print the state of a broker."),
        "drain": ("rocketd.tools.admin.upkeep:drain_command", "Keep producers away from a broker."),
        "undrain": ("rocketd.tools.admin.upkeep:undrain_command", "Open a drained broker to producers."),
        "clean": ("rocketd.tools.admin.upkeep:clean_command", "Delete queues that are not needed any more."),
    },
    help="Run a broker, or look at the brokers of a cluster.",
)
tls_group = LazyGroup(
    "tls",
    {
        "authority": ("rocketd.tools.servers.certificates:authority_command", "Make an authority for a cluster."),
        "certificate": (
            "rocketd.tools.servers.certificates:certificate_command",
            "Issue a certificate for a server or a client.",
        ),
        "show": ("rocketd.tools.servers.certificates:show_command", "Print a certificate of a file or a server."),
    },
    help="Make and show the certificates of a cluster.",
)
topic_group = LazyGroup(
    "topic",
    {
        "list": ("rocketd.tools.cluster.topics:list_command", "List the topics."),
        "show": ("rocketd.tools.cluster.topics:show_command", "Print the queues of a topic with their messages."),
        "create": ("rocketd.tools.cluster.topics:create_command", "Create a topic, or change its number of queues."),
        "delete": ("rocketd.tools.cluster.topics:delete_command", "Delete a topic and its messages."),
        "route": ("rocketd.tools.admin.routes:route_command", "Print the brokers of a topic."),
        "permission": ("rocketd.tools.admin.routes:permission_command", "Permit to read and write a topic, or not."),
        "groups": ("rocketd.tools.admin.routes:groups_command", "List the consumer groups of a topic."),
    },
    help="Work with the topics of a cluster.",
)
message_group = LazyGroup(
    "message",
    {
        "show": ("rocketd.tools.messages.find:show_command", "Print the message with an id."),
        "find": ("rocketd.tools.messages.find:find_command", "Print the messages with a key."),
    },
    help="Find messages by their ids and keys.",
)
dlq_group = LazyGroup(
    "dlq",
    {
        "list": ("rocketd.tools.messages.dlq:list_command", "List the dead letters of a group with their reasons."),
        "show": ("rocketd.tools.messages.dlq:show_command", "Print all of a dead letter."),
        "redrive": ("rocketd.tools.messages.dlq:redrive_command", "Send dead letters again."),
    },
    help="Work with the dead letters of a consumer group.",
)
group_group = LazyGroup(
    "group",
    {
        "list": ("rocketd.tools.admin.groups:list_command", "List the consumer groups."),
        "show": ("rocketd.tools.admin.groups:show_command", "Print the settings and the state of a group."),
        "create": ("rocketd.tools.admin.groups:create_command", "Create a group, or change its settings."),
        "delete": ("rocketd.tools.admin.groups:delete_command", "Delete a group."),
        "members": ("rocketd.tools.admin.groups:members_command", "List the members that are online."),
    },
    help="Work with the consumer groups of a cluster.",
)
offset_group = LazyGroup(
    "offset",
    {
        "show": ("rocketd.tools.admin.offsets:show_command", "Print the offsets of a group."),
        "reset": (
            "rocketd.tools.admin.offsets:reset_command",
            "Move a group to a time, an end or an offset.",
        ),
        "clone": ("rocketd.tools.admin.offsets:clone_command", "Give the offsets of a group to another one."),
    },
    help="Work with the offsets of consumer groups.",
)
client_group = LazyGroup(
    "client",
    {
        "consumers": (
            "rocketd.tools.admin.clients:consumers_command",
            "List the consumers of a group that are online.",
        ),
        "producers": (
            "rocketd.tools.admin.clients:producers_command",
            "List the producers of a group that are online.",
        ),
    },
    help="Look at the connected clients of a cluster.",
)
cluster_group = LazyGroup(
    "cluster",
    {
        "list": ("rocketd.tools.admin.clusters:list_command", "List the clusters."),
        "show": (
            "rocketd.tools.admin.clusters:show_command",
            "Print the brokers of a cluster with their messages.",
        ),
    },
    help="Look at the clusters that the name servers know.",
)
config_group = LazyGroup(
    "config",
    {
        "show": ("rocketd.tools.admin.config:show_command", "Print the settings of a broker."),
        "set": ("rocketd.tools.admin.config:set_command", "Change settings of a broker."),
    },
    help="Work with the settings of running brokers.",
)
kv_group = LazyGroup(
    "kv",
    {
        "list": ("rocketd.tools.admin.kv:list_command", "List the keys and values of a namespace."),
        "get": ("rocketd.tools.admin.kv:get_command", "Print the value of a key."),
        "put": ("rocketd.tools.admin.kv:put_command", "Set the value of a key."),
        "delete": ("rocketd.tools.admin.kv:delete_command", "Delete a key."),
    },
    help="Work with the key-value table of the name servers. Ordered topics are in the namespace ORDER_TOPIC_CONFIG.",
)
acl_group = LazyGroup(
    "acl",
    {
        "list": ("rocketd.tools.admin.accounts:list_command", "List the accounts of the brokers."),
        "put": ("rocketd.tools.admin.accounts:put_command", "Create or change an account."),
        "delete": ("rocketd.tools.admin.accounts:delete_command", "Delete an account."),
        "whitelist": (
            "rocketd.tools.admin.accounts:whitelist_command",
            "Print or set the addresses that need no account.",
        ),
    },
    help="Work with the accounts of brokers that have access control.",
)
