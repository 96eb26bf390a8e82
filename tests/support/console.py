"""A console at a real cluster in this process, and a browser without scripts."""

import re
from contextlib import contextmanager
from html import unescape
from http.client import HTTPConnection
from urllib.parse import urlencode

from rocketd.client.runtime.thread_host import ThreadHost
from rocketd.console.service import ConsoleService
from rocketd.console.settings import ConsoleConfig, ConsoleSettings
from rocketd.testing import Cluster

TIMEOUT_SECONDS = 60


class Answer:
    """The answer to a request."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.html = response.read().decode()
        self.location = self.headers.get("location")

    @property
    def text(self):
        """The page as a reader sees it: without marks, blanks in a row made one."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.html)).split())


class Browser:
    """Keeps the cookie, and sends the token of the last page with a form."""

    def __init__(self, port):
        self.port = port
        self.cookie = None
        self.token = None

    def ask(self, method, path, body=None, headers=()):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        try:
            sent = dict(headers)
            if self.cookie:
                sent.setdefault("Cookie", self.cookie)
            if body is not None:
                sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
            connection.request(method, path, body, sent)
            answer = Answer(connection.getresponse())
        finally:
            connection.close()
        if cookie := answer.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        if found := re.search(r'name="token" value="([0-9a-f]+)"', answer.html):
            self.token = found[1]
        return answer

    def get(self, path, headers=(), **query):
        return self.ask("GET", path + ("?" + urlencode(query) if query else ""), headers=headers)

    def post(self, path, headers=(), **fields):
        return self.ask("POST", path, urlencode({"token": self.token or "", **fields}), headers)


@contextmanager
def console_at(cluster: Cluster, **settings):
    """Run a console for a cluster, in a thread with a reactor, and yield a function that makes browsers."""
    environment = cluster.client_options()["cluster"]
    host = ThreadHost.of_its_own("console")
    given = {"console_port": 0, "namesrv_addr": environment.namesrv, "console_timeout_millis": 60_000, **settings}
    service = ConsoleService(host.reactor, ConsoleSettings(console=ConsoleConfig(**given)), environment.environment)

    async def start():
        service.startService()

    try:
        host.call(start)
        try:
            yield lambda: Browser(service.port)
        finally:
            host.call(service.stopService)
    finally:
        host.release()
