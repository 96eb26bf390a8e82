"""The web console: pages about a cluster, made on the server, without a build step and without foreign scripts.

Counterpart: rocketmq-dashboard (Apache), a separate program in Java.

Theory of operation
-------------------

A request goes through four parts, each in separate modules:

1. ``gate``: the checks before any page: the Host header, the length of the body, the number of requests under way. It also
   sets the security headers of each answer.
2. ``web``: finds the session and the page, checks the CSRF token of changes, and writes the answer.
3. The pages (``topics``, ``groups``, ...): coroutines from a ``Visit`` to a ``View`` or a redirection. They know nothing
   about HTTP, and reach the cluster through ``cluster`` only.
4. ``elements`` and ``render``: a View is a list of plain values such as tables and forms. Only ``render`` makes HTML,
   with one template that escapes each text.

Rules that must not be broken:

- The console never acts with more rights than its user. With accounts, each session has a separate client, which signs
  with the user's secret; the brokers decide.
- Only POST changes something, and each POST needs the token of its session.
- Each wait for the cluster ends after ``consoleTimeoutMillis``.
- Texts of the cluster (names, bodies, properties, remarks) are hostile: they reach HTML only as escaped text.
- All sizes are bounded: sessions, connections, bodies, rows of a page.

Everything runs in the reactor thread.
"""
