"""Settings of the network layer of name server and broker.

Counterpart: `NettyServerConfig` (Apache), with the same keys and defaults.
"""

from rocketd.common.networks import ANY, NETWORKS, is_network_list
from rocketd.common.settings.checks import is_ip_address
from rocketd.common.settings.declaration import Long, setting, settings_group
from rocketd.remoting.settings import SOCKET, THREADS
from rocketd.remoting.wire.codes import CURRENT_VERSION, MAX_VERSION, VERSION_VARIABLE


@settings_group
class NettyServerConfig:
    """Listening of a daemon."""

    listen_port: int = setting(
        8888,
        "TCP port for clients, with and without TLS. 0 means any free port.",
        minimum=0,
        maximum=65535,
        important=True,
    )
    bind_address: str | None = setting(
        None,
        "Address of this machine at which the ports are opened. If unset, all addresses.",
        check=is_ip_address,
        accepted="an IPv4 or IPv6 address",
        remote=False,
    )
    server_worker_threads: int = setting(8, no_effect=THREADS)
    server_callback_executor_threads: int = setting(
        0,
        "Number of threads for decoding the answers of clients to relayed requests. 0 means 4.",
        minimum=0,
    )
    server_selector_threads: int = setting(3, no_effect=THREADS)
    server_oneway_semaphore_value: int = setting(
        256,
        "Maximum number of oneway requests to clients in progress at the same time.",
        minimum=1,
    )
    server_async_semaphore_value: int = setting(
        64,
        "Maximum number of relayed requests to clients in progress at the same time. Further ones wait within their "
        "timeout.",
        minimum=1,
    )
    server_channel_max_idle_time_seconds: int = setting(
        120,
        "Time after which an idle connection is closed, without data in both directions. 0 means never.",
        unit="s",
        minimum=0,
    )
    server_socket_snd_buf_size: int = setting(
        0,
        "Send buffer of accepted sockets (SO_SNDBUF). 0 leaves the size to the system.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "socket.sndbuf.size",),
    )
    server_socket_rcv_buf_size: int = setting(
        0,
        "Receive buffer of accepted sockets (SO_RCVBUF). 0 leaves the size to the system.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "socket.rcvbuf.size",),
    )
    write_buffer_high_water_mark: int = setting(
        0,
        "Unsent bytes of a connection at which its requests are no longer read or executed. It replaces "
        "serverUnsentMaxBytesPerConnection if writeBufferLowWaterMark is also set, and not higher.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "write.buffer.high.water.mark",),
    )
    write_buffer_low_water_mark: int = setting(
        0,
        "Unsent bytes of a connection below which its requests are read again, see writeBufferHighWaterMark.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "write.buffer.low.water.mark",),
    )
    server_socket_backlog: int = setting(
        1024,
        "Number of connections kept by the system until they are accepted.",
        minimum=1,
        aliases=(SOCKET + "socket.backlog",),
    )
    plugin_stop_timeout: Long = setting(
        10000,
        "Maximum time that a stop waits for the unanswered requests, hooks and listeners of plugins. The log names "
        "the unfinished ones.",
        unit="ms",
        minimum=0,
    )
    server_pooled_byte_buf_allocator_enable: bool = setting(
        True,
        no_effect="Python manages its buffers itself.",
    )
    use_epoll_native_selector: bool = setting(False, no_effect="on Linux the reactor always uses epoll.")


@settings_group
class ServerLimits:
    """Limits on the resources used by one peer, and by all peers together. Each is counted, and logged once a minute."""

    server_allowed_addresses: str = setting(
        ANY,
        "Addresses from which connections are accepted. Connections from other addresses are closed at once.",
        check=is_network_list,
        accepted=NETWORKS,
        remote=False,
    )
    server_max_connections: int = setting(
        50000,
        "Maximum number of open connections. A further one takes the place of a quiet connection of the address with "
        "the most, or is closed at once if its own address has about as many. 0 means as many as the limit of open "
        "files allows. The limit of open files also lowers a greater value: a connection takes two files, and the "
        "store needs some.",
        minimum=0,
    )
    server_max_connections_per_address: int = setting(
        0,
        "Maximum number of open connections from one IPv4 address, or from one /64 network of IPv6. Further ones are "
        "closed at once. 0 means the same as serverMaxConnections, because a load balancer or NAT can give thousands "
        "of clients one address. Also without this limit, a full server shares its connections among addresses.",
        minimum=0,
    )
    server_handshake_timeout_millis: int = setting(
        15000,
        "Timeout of a TLS handshake, from its first byte.",
        unit="ms",
        minimum=100,
    )
    server_frame_timeout_millis: int = setting(
        30000,
        "Timeout of a frame, from its first byte. A frame may take longer at a rate of at least "
        "serverFrameMinBytesPerSecond over this time. Otherwise its connection is closed.",
        unit="ms",
        minimum=100,
    )
    server_frame_min_bytes_per_second: int = setting(
        8192,
        "Lowest rate per second of a frame beyond serverFrameTimeoutMillis. The default is enough for large messages "
        "over a slow uplink.",
        unit="bytes",
        minimum=0,
    )
    server_incomplete_frames_max_bytes: Long = setting(
        134217728,
        "Maximum memory of the incomplete frames of all connections. Beyond it, connections are closed, first those "
        "with the largest product of bytes and time.",
        unit="bytes",
        minimum=1048576,
    )
    server_max_header_bytes: int = setting(
        1048576,
        "Maximum size of a request's header. A longer one closes the connection. Brokers store properties of a message "
        "up to 32767 bytes, and answer longer ones with MESSAGE_ILLEGAL.",
        unit="bytes",
        minimum=1024,
    )
    server_max_unanswered_requests: int = setting(
        5000,
        "Number of one connection's waiting requests in one pool at which reading from the connection stops. It "
        "resumes at half of this number. The same holds for its requests that are answered later, for example after "
        "the answer of another client. Held pulls have maxHeldPullsPerConnection instead.",
        minimum=1,
    )
    server_unsent_max_bytes_per_connection: int = setting(
        8388608,
        "Unsent answers of one connection at which its requests are no longer read or executed.",
        unit="bytes",
        minimum=65536,
    )
    server_unsent_max_bytes_in_all: Long = setting(
        268435456,
        "Maximum memory of the unsent answers of all connections. Beyond it, connections are closed, first those "
        "with the most unsent bytes. Messages sent from the mapped log do not count. With TLS, each takes 128 KB.",
        unit="bytes",
        minimum=1048576,
    )
    memory_return_threshold_bytes: Long = setting(
        67108864,
        "Released memory of requests and answers, or growth of the process, after which free memory is returned to "
        "the system (malloc_trim; glibc only). This happens at most once a minute. 0 means never.",
        unit="bytes",
        minimum=0,
    )


@settings_group
class RemotingConfig:
    """Settings for both directions. Java's remoting takes them as system properties."""

    frame_max_length: int = setting(
        16777216,
        "Maximum size of a received frame, including its length field. A longer one closes the connection. Answers may "
        "have this size as well, and always 16777216 bytes. Except for pulls, a longer answer becomes an error.",
        name="com.rocketmq.remoting.frameMaxLength",
        unit="bytes",
        minimum=1024,
        system_property=True,
    )
    serialize_type: str = setting(
        "JSON",
        "Header format of the daemon's own requests. An answer has the format of its request.",
        name="rocketmq.serialize.type",
        choices=("JSON", "ROCKETMQ"),
        environment="ROCKETMQ_SERIALIZE_TYPE",
        system_property=True,
    )
    version: int = setting(
        CURRENT_VERSION,
        "Version in all requests and answers of the process. It is a number of Apache's MQVersion; 407 means 4.9.7.",
        name="rocketmq.remoting.version",
        minimum=0,
        maximum=MAX_VERSION,
        environment=VERSION_VARIABLE,
        system_property=True,
    )
