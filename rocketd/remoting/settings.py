"""The settings of the network layer, used by name server and broker alike.

Answers to NettyServerConfig, NettyClientConfig, NettySystemConfig and TlsSystemConfig: same keys, same defaults. What
Java takes as -D properties (everything whose key has dots) is taken from the config file and from -o instead.
"""

from rocketd.common.config import Long, setting, settings_group
from rocketd.common.networks import ANY, NETWORKS, is_network_list

SOCKET = "com.rocketmq.remoting."
THREADS = "one reactor thread serves all connections."


@settings_group
class NettyServerConfig:
    """How a daemon listens."""

    listen_port: int = setting(
        8888, "TCP port for clients, plain and TLS. 0 takes any free port.", minimum=0, maximum=65535, important=True
    )
    server_worker_threads: int = setting(8, no_effect=THREADS)
    server_callback_executor_threads: int = setting(
        0, "Threads that decode the answers of clients to requests that are relayed to them. 0 means 4.", minimum=0
    )
    server_selector_threads: int = setting(3, no_effect=THREADS)
    server_oneway_semaphore_value: int = setting(
        256, "How many oneway requests to clients may be under way at once.", minimum=1
    )
    server_async_semaphore_value: int = setting(
        64,
        "How many requests that are relayed to clients may be under way at once; others wait within their timeout.",
        minimum=1,
    )
    server_channel_max_idle_time_seconds: int = setting(
        120, "A connection that neither sends nor receives for so long is closed. 0 never closes.", unit="s", minimum=0
    )
    server_socket_snd_buf_size: int = setting(
        0,
        "Send buffer of accepted sockets (SO_SNDBUF). 0 leaves it to the system.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "socket.sndbuf.size",),
    )
    server_socket_rcv_buf_size: int = setting(
        0,
        "Receive buffer of accepted sockets (SO_RCVBUF). 0 leaves it to the system.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "socket.rcvbuf.size",),
    )
    write_buffer_high_water_mark: int = setting(
        0,
        "Unsent bytes of a connection from which on none of its requests are read or carried out; instead of "
        "serverUnsentMaxBytesPerConnection if writeBufferLowWaterMark is set too, and not higher.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "write.buffer.high.water.mark",),
    )
    write_buffer_low_water_mark: int = setting(
        0,
        "Unsent bytes of a connection below which its requests are read again; see writeBufferHighWaterMark.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "write.buffer.low.water.mark",),
    )
    server_socket_backlog: int = setting(
        1024, "Connections the system keeps until they are accepted.", minimum=1, aliases=(SOCKET + "socket.backlog",)
    )
    plugin_stop_timeout: Long = setting(
        10000,
        "How long a stop waits for requests that processor plugins have not answered. The log names those left behind.",
        unit="ms",
        minimum=0,
    )
    server_pooled_byte_buf_allocator_enable: bool = setting(True, no_effect="Python manages its buffers itself.")
    use_epoll_native_selector: bool = setting(False, no_effect="on Linux the reactor always uses epoll.")


@settings_group
class ServerLimits:
    """What one peer, and all peers together, may take of a daemon. Each limit is counted, and logged once a minute."""

    server_allowed_addresses: str = setting(
        ANY,
        "The addresses from which connections are taken. Those of all others are closed at once.",
        check=is_network_list,
        accepted=NETWORKS,
        remote=False,
    )
    server_max_connections: int = setting(
        50000,
        "Connections that are kept open. Further ones are closed at once. 0 means as many as the limit of open files "
        "allows, which bounds this setting too: a connection takes two, and the store needs some.",
        minimum=0,
    )
    server_max_connections_per_address: int = setting(
        0,
        "Connections that are kept open from one IPv4 address or one /64 network of IPv6. 0 means as many as in all: "
        "a load balancer or NAT gives thousands of clients one address.",
        minimum=0,
    )
    server_handshake_timeout_millis: int = setting(
        15000, "How long a TLS handshake may take, from its first byte.", unit="ms", minimum=100
    )
    server_frame_timeout_millis: int = setting(
        30000,
        "How long a frame may take from its first byte. One that takes longer must come at the rate of "
        "serverFrameMinBytesPerSecond, measured over this time; otherwise its connection is closed.",
        unit="ms",
        minimum=100,
    )
    server_frame_min_bytes_per_second: int = setting(
        8192,
        "The least speed of a frame that takes longer than serverFrameTimeoutMillis. A slow uplink with large messages "
        "needs no more.",
        unit="bytes",
        minimum=0,
    )
    server_incomplete_frames_max_bytes: Long = setting(
        134217728,
        "Memory that the incomplete frames of all connections may take. Beyond it, the connections are closed that hold "
        "the most for the longest.",
        unit="bytes",
        minimum=1048576,
    )
    server_max_header_bytes: int = setting(
        65536,
        "Longest header of a request; a longer one closes the connection. Properties of messages, at most 32767 bytes, "
        "are the largest part of a header.",
        unit="bytes",
        minimum=1024,
    )
    server_max_unanswered_requests: int = setting(
        5000,
        "Requests of one connection that wait in one pool before nothing more is read from it. Reading goes on at half "
        "of it.",
        minimum=1,
    )
    server_unsent_max_bytes_per_connection: int = setting(
        8388608,
        "Unsent answers of one connection from which on none of its requests are read or carried out.",
        unit="bytes",
        minimum=65536,
    )
    server_unsent_max_bytes_in_all: Long = setting(
        268435456,
        "Memory that the unsent answers of all connections may take. Beyond it, the connections are closed that have "
        "taken the least. Messages that are sent from the mapped log take no memory.",
        unit="bytes",
        minimum=1048576,
    )
    memory_return_threshold_bytes: Long = setting(
        67108864,
        "After so much memory of requests and answers was released, free memory is given back to the system, at most "
        "once a minute (malloc_trim; glibc only). 0 never does so.",
        unit="bytes",
        minimum=0,
    )


@settings_group
class NettyClientConfig:
    """How a broker connects to name servers and other brokers."""

    client_worker_threads: int = setting(4, no_effect=THREADS, aliases=(SOCKET + "client.worker.size",))
    client_callback_executor_threads: int = setting(
        factory=lambda machine: machine.cpus,
        formula="number of CPUs",
        doc="Threads that run callbacks of asynchronous requests, and decode long requests of brokers. 0 means 4.",
        minimum=0,
    )
    client_oneway_semaphore_value: int = setting(
        65535,
        "How many oneway requests may be under way at once.",
        minimum=1,
        aliases=(SOCKET + "clientOnewaySemaphoreValue",),
    )
    client_async_semaphore_value: int = setting(
        65535,
        "How many asynchronous requests may be under way at once: sends and pulls of a client. Others wait within their "
        "timeout.",
        minimum=1,
        aliases=(SOCKET + "clientAsyncSemaphoreValue",),
    )
    connect_timeout_millis: int = setting(
        3000,
        "How long to wait for a connection to be made.",
        unit="ms",
        minimum=1,
        aliases=(SOCKET + "client.connect.timeout",),
    )
    channel_not_active_interval: Long = setting(60000, no_effect="Apache's code does not read it either.", unit="ms")
    client_channel_max_idle_time_seconds: int = setting(
        120,
        "An outgoing connection that neither sends nor receives for so long is closed. 0 never closes.",
        unit="s",
        minimum=0,
        aliases=(SOCKET + "client.channel.maxIdleTimeSeconds",),
    )
    client_socket_snd_buf_size: int = setting(
        0,
        "Send buffer of outgoing sockets (SO_SNDBUF). 0 leaves it to the system.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "socket.sndbuf.size",),
    )
    client_socket_rcv_buf_size: int = setting(
        0,
        "Receive buffer of outgoing sockets (SO_RCVBUF). 0 leaves it to the system.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "socket.rcvbuf.size",),
    )
    client_pooled_byte_buf_allocator_enable: bool = setting(False, no_effect="Python manages its buffers itself.")
    client_close_socket_if_timeout: bool = setting(
        True,
        "Whether a connection on which an answer did not come in time is closed, if nothing has come over it since.",
        aliases=(SOCKET + "client.closeSocketIfTimeout",),
    )
    use_tls: bool = setting(
        False,
        "Whether outgoing connections use TLS.",
        name="useTLS",
        formula="tls.enable where given, else whether tls.server.mode is enforcing",
    )
    write_buffer_high_water_mark: int = setting(
        0,
        no_effect="a client waits for the socket to take everything, whatever its size.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "write.buffer.high.water.mark",),
    )
    write_buffer_low_water_mark: int = setting(
        0,
        no_effect="a client waits for the socket to take everything, whatever its size.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "write.buffer.low.water.mark",),
    )


@settings_group
class RemotingConfig:
    """What Java's remoting takes as system properties for both directions."""

    frame_max_length: int = setting(
        16777216,
        "Longest frame that is read, its length field included; a longer one closes the connection.",
        name="com.rocketmq.remoting.frameMaxLength",
        unit="bytes",
        minimum=1024,
        system_property=True,
    )
    serialize_type: str = setting(
        "JSON",
        "Header format of the daemon's own requests. Answers use the format of their request.",
        name="rocketmq.serialize.type",
        choices=("JSON", "ROCKETMQ"),
        environment="ROCKETMQ_SERIALIZE_TYPE",
        system_property=True,
    )


@settings_group
class TlsConfig:
    """Transport encryption of both directions."""

    server_mode: str = setting(
        "permissive",
        "Whether clients may use TLS: disabled refuses it, permissive takes both on one port, enforcing refuses plain "
        "connections.",
        name="tls.server.mode",
        choices=("disabled", "permissive", "enforcing"),
        system_property=True,
    )
    enable: bool = setting(
        False, "Whether outgoing connections use TLS; see useTLS.", name="tls.enable", system_property=True
    )
    config_file: str = setting(
        "/etc/rocketmq/tls.properties",
        "File with the tls.* settings, except tls.server.mode and tls.enable. It need not exist unless this is set; "
        "the config file and -o win over it.",
        name="tls.config.file",
        remote=False,
        system_property=True,
    )
    test_mode_enable: bool = setting(
        True,
        "Serve with a self-signed certificate made at start and trust every server. Set it to false to use the key and "
        "certificate files.",
        name="tls.test.mode.enable",
        remote=False,
        system_property=True,
    )
    server_need_client_auth: str = setting(
        "none",
        "Whether a client shows a certificate: none, optional or require.",
        name="tls.server.need.client.auth",
        choices=("none", "optional", "require"),
        remote=False,
        system_property=True,
    )
    server_key_path: str | None = setting(
        None,
        "Private key of the server, PEM (PKCS#8 or PKCS#1).",
        name="tls.server.keyPath",
        remote=False,
        system_property=True,
    )
    server_key_password: str | None = setting(
        None,
        "Password of the server's private key.",
        name="tls.server.keyPassword",
        remote=False,
        secret=True,
        system_property=True,
    )
    server_cert_path: str | None = setting(
        None,
        "Certificate chain of the server, PEM, its own certificate first.",
        name="tls.server.certPath",
        remote=False,
        system_property=True,
    )
    server_auth_client: bool = setting(
        False,
        "Whether certificates of clients are checked against tls.server.trustCertPath.",
        name="tls.server.authClient",
        remote=False,
        system_property=True,
    )
    server_trust_cert_path: str | None = setting(
        None,
        "Certificates, PEM, that vouch for clients.",
        name="tls.server.trustCertPath",
        remote=False,
        system_property=True,
    )
    client_key_path: str | None = setting(
        None,
        "Private key shown by outgoing connections, PEM (PKCS#8 or PKCS#1).",
        name="tls.client.keyPath",
        remote=False,
        system_property=True,
    )
    client_key_password: str | None = setting(
        None,
        "Password of the private key of outgoing connections.",
        name="tls.client.keyPassword",
        remote=False,
        secret=True,
        system_property=True,
    )
    client_cert_path: str | None = setting(
        None,
        "Certificate chain shown by outgoing connections, PEM.",
        name="tls.client.certPath",
        remote=False,
        system_property=True,
    )
    client_auth_server: bool = setting(
        False,
        "Whether outgoing connections check the server's certificate against tls.client.trustCertPath.",
        name="tls.client.authServer",
        remote=False,
        system_property=True,
    )
    client_trust_cert_path: str | None = setting(
        None,
        "Certificates, PEM, that vouch for the servers of outgoing connections.",
        name="tls.client.trustCertPath",
        remote=False,
        system_property=True,
    )
