"""TLS: contexts, one port for TLS and plain text, and certificates that change on disk.

`certificates` reads or creates keys and certificates, `contexts` builds the contexts of both sides. `port` detects TLS
by the first byte, `accepted` begins it, `certificate_watch` reloads changed files. Contexts are built at the start, so
wrong files stop the daemon.
"""
