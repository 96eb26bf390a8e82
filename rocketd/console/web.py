"""The routes: from a request of HTTP to a page and back, with the session and the token of its browser."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, cast
from urllib.parse import urlsplit

from klein import Klein
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from twisted.web.server import Request
from werkzeug.exceptions import HTTPException

from rocketd.common.networks import LOOPBACK, NetworkList
from rocketd.console.cluster import ClusterDoor, ConsoleCluster
from rocketd.console.errors import ForbiddenError, LoginError, NotFoundError, answer_to
from rocketd.console.pages.audit import audit
from rocketd.console.pages.brokers import broker_page
from rocketd.console.pages.dead_letters import dead_letter_list, dead_letter_page, redrive, redrive_preview
from rocketd.console.pages.elements import DONE, Form, Input, Notice, Redirect, View
from rocketd.console.pages.groups import group_list, group_page, reset, reset_preview
from rocketd.console.pages.messages import message_page, message_search
from rocketd.console.pages.overview import overview
from rocketd.console.pages.topics import (
    delete_topic,
    delete_topic_preview,
    new_topic,
    save_topic,
    send_message,
    topic_list,
    topic_page,
)
from rocketd.console.pages.visit import Visit
from rocketd.console.render import Frame, address_of, page, style_sheet
from rocketd.console.sessions import FailedLogins, Sessions, Tokens, new_id
from rocketd.console.settings import ACCOUNTS, ConsoleConfig

COOKIE: Final = "rocketd-console"
_LOOPBACK: Final = NetworkList(LOOPBACK)

Page = Callable[[Visit], Awaitable[View | Redirect]]

PAGES: Final[Mapping[str, Page]] = {
    "/": overview,
    "/topics": topic_list,
    "/topic": topic_page,
    "/topic/new": new_topic,
    "/topic/delete": delete_topic_preview,
    "/groups": group_list,
    "/group": group_page,
    "/group/reset": reset_preview,
    "/messages": message_search,
    "/message": message_page,
    "/dead-letters": dead_letter_list,
    "/dead-letter": dead_letter_page,
    "/dead-letters/redrive": redrive_preview,
    "/broker": broker_page,
    "/audit": audit,
}
"""The pages that change nothing, by path."""

CHANGES: Final[Mapping[str, Page]] = {
    "/topic/save": save_topic,
    "/topic/delete": delete_topic,
    "/topic/send": send_message,
    "/group/reset": reset,
    "/dead-letters/redrive": redrive,
}
"""The changes, by path. They are asked for by POST."""


@dataclass(frozen=True, slots=True)
class _Visitor:
    """A browser: the id in its cookie, whether it has it already, and the cluster of its session if it is signed in."""

    number: str
    known: bool
    cluster: ConsoleCluster | None


class ConsolePages:
    """All routes. Reactor thread. ``common`` is the cluster of all users without accounts."""

    _log = Logger()

    def __init__(
        self,
        config: ConsoleConfig,
        door: ClusterDoor,
        sessions: Sessions[ConsoleCluster],
        common: ConsoleCluster | None,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._door = door
        self._sessions = sessions
        self._common = common
        self._tokens = Tokens()
        self._failures = FailedLogins(clock)
        url = urlsplit(config.console_url or "")
        self._secure = url.scheme == "https"
        self.base = url.path.rstrip("/")
        self.app = self._routes()

    def _routes(self) -> Klein:
        app = Klein()
        for path, each in PAGES.items():
            self._add(app, "GET", path, self._shown(path, each))
        for path, each in CHANGES.items():
            self._add(app, "POST", path, self._changed(each))
        self._add(app, "GET", "/login", self._login_page)
        self._add(app, "POST", "/login", self._login)
        self._add(app, "POST", "/logout", self._logout)
        self._add(app, "GET", "/static/console.css", self._style)
        self._add(app, "GET", "/healthz", self._health)

        def not_found(request: IRequest, failure: Failure) -> bytes:  # noqa: ARG001 - klein passes it
            return self._failed(cast(Request, request), NotFoundError("This page does not exist."))

        app.handle_errors(HTTPException)(not_found)
        return app

    def _add(self, app: Klein, method: str, path: str, handler: Callable[[Request], Awaitable[bytes]]) -> None:
        async def guarded(request: Request) -> bytes:
            try:
                return await handler(request)
            except Exception as error:
                return self._failed(request, error)

        app.route(path, methods=[method], endpoint=f"{method} {path}")(guarded)

    # ------------------------------------------------------------ pages

    def _shown(self, path: str, each: Page) -> Callable[[Request], Awaitable[bytes]]:
        async def show(request: Request) -> bytes:
            visitor = self._visitor(request)
            if visitor.cluster is None:
                return self._redirected(request, Redirect("/login"))
            visit = Visit(visitor.cluster, _fields(request), self._config.console_read_only)
            return self._answer(request, visitor, await visitor.cluster.within(_run(each, visit)), path)

        return show

    def _changed(self, each: Page) -> Callable[[Request], Awaitable[bytes]]:
        async def change(request: Request) -> bytes:
            if self._config.console_read_only:
                raise ForbiddenError("The console is read-only (consoleReadOnly).")
            visitor = self._checked(request)
            if visitor.cluster is None:
                return self._redirected(request, Redirect("/login"))
            visit = Visit(visitor.cluster, _fields(request))
            return self._answer(request, visitor, await visitor.cluster.within(_run(each, visit)))

        return change

    def _answer(self, request: Request, visitor: _Visitor, result: View | Redirect, path: str = "") -> bytes:
        if isinstance(result, Redirect):
            return self._redirected(request, result)
        return self._page(request, visitor, result, path)

    def _page(self, request: Request, visitor: _Visitor, view: View, path: str = "") -> bytes:
        if not visitor.known:
            self._set_cookie(request, visitor.number)
        request.setResponseCode(view.status)
        request.setHeader("content-type", "text/html; charset=utf-8")
        if view.reload_seconds:
            request.setHeader("refresh", str(view.reload_seconds))
        frame = Frame(
            self.base,
            self._tokens.of(visitor.number),
            None if visitor.cluster is None else visitor.cluster.account,
            self._config.console_read_only,
            DONE.get(_fields(request).get("done", ""), ""),
            visitor.cluster is not None,
            path,
        )
        return page(view, frame)

    def _redirected(self, request: Request, target: Redirect) -> bytes:
        request.setResponseCode(303)
        request.setHeader("location", address_of(self.base, target))
        return b""

    def _failed(self, request: Request, error: Exception) -> bytes:
        answer = answer_to(error)
        if answer is None:
            self._log.failure("a page of the console failed")
            answer = 500, "The console has failed. Its log says why."
        status, text = answer
        visitor = self._visitor(request)
        return self._page(request, visitor, View("This did not work", [Notice("error", text)], status=status))

    # ------------------------------------------------------------ sign-in

    async def _login_page(self, request: Request) -> bytes:
        if self._config.console_login != ACCOUNTS:
            return self._redirected(request, Redirect("/"))
        return self._page(request, self._visitor(request), _login_view())

    async def _login(self, request: Request) -> bytes:
        visitor = self._checked(request)
        if self._config.console_login != ACCOUNTS:
            return self._redirected(request, Redirect("/"))
        address = self._address(request)
        fields = _fields(request)
        account = fields.get("access_key", "")
        if self._failures.are_many(address, account):
            return self._page(request, visitor, _login_view("Too many failed sign-ins. Wait a minute.", 429))
        try:
            cluster = await self._door.sign_in(account, fields.get("secret_key", ""))
        except LoginError as error:
            self._failures.add(address, account)
            self._log.info("a sign-in from {address} failed", address=address)
            return self._page(request, visitor, _login_view(str(error), error.status))
        self._sessions.end(visitor.number)
        # A new id: a browser that knew the former one does not get the session.
        self._set_cookie(request, self._sessions.begin(cluster))
        return self._redirected(request, Redirect("/"))

    def _address(self, request: Request) -> str:
        """Return the address of the browser: the last one named by a proxy on this machine, if consoleUrl is set."""
        peer = str(getattr(request.getClientAddress(), "host", ""))
        named = ",".join(request.requestHeaders.getRawHeaders("x-forwarded-for") or []).rpartition(",")[2].strip()
        if self._config.console_url is None or not _LOOPBACK.allows(peer):
            return peer
        try:
            return str(ip_address(named))
        except ValueError:
            return peer

    async def _logout(self, request: Request) -> bytes:
        visitor = self._checked(request)
        self._sessions.end(visitor.number)
        self._set_cookie(request, new_id())
        return self._redirected(request, Redirect("/login"))

    def _visitor(self, request: Request) -> _Visitor:
        cookie = request.getCookie(COOKIE.encode())
        number = None if cookie is None else cookie.decode("ascii", "replace")
        return _Visitor(number or new_id(), bool(number), self._common or self._sessions.find(number))

    def _checked(self, request: Request) -> _Visitor:
        """Return the browser. Raises ForbiddenError unless the form has the token of its cookie."""
        visitor = self._visitor(request)
        if not visitor.known or not self._tokens.fits(visitor.number, _fields(request).get("token")):
            raise ForbiddenError(
                "The form has expired, or comes from another site. Go back, load the page again, and repeat."
            )
        return visitor

    def _set_cookie(self, request: Request, number: str) -> None:
        request.addCookie(COOKIE, number, path=self.base or "/", httpOnly=True, secure=self._secure, sameSite="strict")

    # ------------------------------------------------------------ other paths

    async def _style(self, request: Request) -> bytes:
        request.setHeader("content-type", "text/css; charset=utf-8")
        request.setHeader("cache-control", "max-age=3600")
        return style_sheet()

    async def _health(self, request: Request) -> bytes:
        request.setHeader("content-type", "text/plain; charset=utf-8")
        return b"ok\n"


async def _run(each: Page, visit: Visit) -> View | Redirect:
    return await each(visit)


def _fields(request: Request) -> dict[str, str]:
    """Return the parameters of the query and the form, the last value of each."""
    return {
        name.decode("utf-8", "replace"): values[-1].decode("utf-8", "replace")
        for name, values in (request.args or {}).items()
    }


def _login_view(fault: str = "", status: int = 200) -> View:
    form = Form(
        "Account of the brokers",
        "/login",
        "Sign in",
        [
            Input("access_key", "Access key", required=True, complete="username"),
            Input("secret_key", "Secret key", "password", required=True, complete="current-password"),
        ],
        change=True,
    )
    return View("Sign in", [*([Notice("error", fault)] if fault else []), form], status=status)
