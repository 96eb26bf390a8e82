"""Settings of the network layer, for servers and clients. `serving.settings` has those of servers alone.

Counterpart: `NettyServerConfig`, `NettyClientConfig`, `NettySystemConfig` and `TlsSystemConfig` (Apache), with the same
keys and defaults. Java's -D properties (keys with dots) are read from the config file and from -o instead.
"""

from rocketd.common.settings.declaration import Long, setting, settings_group

SOCKET = "com.rocketmq.remoting."
THREADS = "one reactor thread serves all connections."


@settings_group
class NettyClientConfig:
    """Connections of a broker to name servers and other brokers."""

    client_worker_threads: int = setting(4, no_effect=THREADS, aliases=(SOCKET + "client.worker.size",))
    client_callback_executor_threads: int = setting(
        factory=lambda machine: machine.cpus,
        formula="number of CPUs",
        doc="Number of threads for callbacks of asynchronous requests, and for decoding long requests of brokers. 0 "
        "means 4.",
        minimum=0,
    )
    client_oneway_semaphore_value: int = setting(
        65535,
        "Maximum number of oneway requests in progress at the same time.",
        minimum=1,
        aliases=(SOCKET + "clientOnewaySemaphoreValue",),
    )
    client_async_semaphore_value: int = setting(
        65535,
        "Maximum number of asynchronous requests in progress at the same time, for example sends and pulls of a "
        "client. Further ones wait within their timeout.",
        minimum=1,
        aliases=(SOCKET + "clientAsyncSemaphoreValue",),
    )
    connect_timeout_millis: int = setting(
        3000,
        "Timeout of a connection attempt.",
        unit="ms",
        minimum=1,
        aliases=(SOCKET + "client.connect.timeout",),
    )
    channel_not_active_interval: Long = setting(60000, no_effect="Apache's code does not read it either.", unit="ms")
    client_channel_max_idle_time_seconds: int = setting(
        120,
        "Time after which an idle outgoing connection is closed, without data in both directions. 0 means never.",
        unit="s",
        minimum=0,
        aliases=(SOCKET + "client.channel.maxIdleTimeSeconds",),
    )
    client_socket_snd_buf_size: int = setting(
        0,
        "Send buffer of outgoing sockets (SO_SNDBUF). 0 leaves the size to the system.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "socket.sndbuf.size",),
    )
    client_socket_rcv_buf_size: int = setting(
        0,
        "Receive buffer of outgoing sockets (SO_RCVBUF). 0 leaves the size to the system.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "socket.rcvbuf.size",),
    )
    client_pooled_byte_buf_allocator_enable: bool = setting(
        False,
        no_effect="Python manages its buffers itself.",
    )
    client_close_socket_if_timeout: bool = setting(
        True,
        "Whether a connection is closed if an answer is late and nothing was received since its request.",
        aliases=(SOCKET + "client.closeSocketIfTimeout",),
    )
    use_tls: bool = setting(
        False,
        "Whether outgoing connections use TLS.",
        name="useTLS",
        formula="tls.enable if set, else true if tls.server.mode is enforcing",
    )
    write_buffer_high_water_mark: int = setting(
        0,
        no_effect="a client always waits until the socket has accepted all data.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "write.buffer.high.water.mark",),
    )
    write_buffer_low_water_mark: int = setting(
        0,
        no_effect="a client always waits until the socket has accepted all data.",
        unit="bytes",
        minimum=0,
        aliases=(SOCKET + "write.buffer.low.water.mark",),
    )


@settings_group
class TlsConfig:
    """TLS of accepted and of outgoing connections."""

    server_mode: str = setting(
        "permissive",
        "TLS for clients: disabled refuses it, permissive accepts TLS and plain connections on one port, enforcing "
        "refuses plain connections.",
        name="tls.server.mode",
        choices=("disabled", "permissive", "enforcing"),
        system_property=True,
    )
    enable: bool = setting(
        False,
        "Whether outgoing connections use TLS, see useTLS.",
        name="tls.enable",
        system_property=True,
    )
    config_file: str = setting(
        "/etc/rocketmq/tls.properties",
        "File with the tls.* settings, except tls.server.mode and tls.enable. The config file and -o have "
        "precedence. The file at the default path may be missing, but not one set here.",
        name="tls.config.file",
        remote=False,
        system_property=True,
    )
    test_mode_enable: bool = setting(
        True,
        "Whether the server uses a self-signed certificate made at start, and outgoing connections trust every "
        "server. Set false to use the key and certificate files.",
        name="tls.test.mode.enable",
        remote=False,
        system_property=True,
    )
    server_need_client_auth: str = setting(
        "none",
        "Client certificates: none does not ask for one, optional asks for one, require refuses clients without one.",
        name="tls.server.need.client.auth",
        choices=("none", "optional", "require"),
        remote=False,
        system_property=True,
    )
    server_key_path: str | None = setting(
        None,
        "File with the server's private key, in PEM (PKCS#8 or PKCS#1).",
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
        "File with the server's certificate chain, in PEM, the server's certificate first.",
        name="tls.server.certPath",
        remote=False,
        system_property=True,
    )
    server_auth_client: bool = setting(
        False,
        "Whether client certificates are checked against tls.server.trustCertPath.",
        name="tls.server.authClient",
        remote=False,
        system_property=True,
    )
    server_trust_cert_path: str | None = setting(
        None,
        "File with the CA certificates, in PEM, for checking clients.",
        name="tls.server.trustCertPath",
        remote=False,
        system_property=True,
    )
    client_key_path: str | None = setting(
        None,
        "File with the private key for outgoing connections, in PEM (PKCS#8 or PKCS#1).",
        name="tls.client.keyPath",
        remote=False,
        system_property=True,
    )
    client_key_password: str | None = setting(
        None,
        "Password of the private key for outgoing connections.",
        name="tls.client.keyPassword",
        remote=False,
        secret=True,
        system_property=True,
    )
    client_cert_path: str | None = setting(
        None,
        "File with the certificate chain for outgoing connections, in PEM.",
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
        "File with the CA certificates, in PEM, for checking the servers of outgoing connections.",
        name="tls.client.trustCertPath",
        remote=False,
        system_property=True,
    )
