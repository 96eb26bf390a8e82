"""A server on loopback with scripted answers."""

import contextlib
import socket
import threading

from rocketd.remoting.bodies.tables import BrokerData, ClusterInfo
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder


class Cut:
    """An answer cut short by the end of its connection."""

    def __init__(self, answer):
        self.answer = answer


class ScriptedServer:
    """Name server and broker ``b`` in one, on a real socket: `answers` maps request codes to functions.

    Each takes the request and returns an answer, bytes to write as they are, or None to close.
    """

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.brokers = {0: self.address}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        decoder = FrameDecoder()
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                for frame in decoder.feed(data):
                    request = RemotingCommand.decode(frame)
                    self.asked.append(request)
                    answer = self._answer(request)
                    if answer is None:
                        return
                    if isinstance(answer, Cut):
                        connection.sendall(answer.answer.answering(request).encode()[:-20])
                        return
                    if isinstance(answer, RemotingCommand):
                        answer = answer.answering(request).encode()
                    connection.sendall(answer)

    def _answer(self, request):
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            info = ClusterInfo({"b": BrokerData("c", "b", self.brokers)}, {"c": {"b"}})
            return RemotingCommand.response(body=info.encode())
        return self.answers[request.code](request)

    def close(self):
        self._listening.close()


def offset_answer(number):
    return lambda request: RemotingCommand.response(ext_fields={"offset": str(number)})
