"""The errors of the client, whole in another process."""

import pickle

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client import Reject, Retry
from rocketd.client.errors import Attempt, BrokerError, RocketMQError, StopConsuming, UnreachableError
from rocketd.remoting import errors as remoting_errors
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.wire.command import RemotingCommand

ATTEMPTS = (Attempt("a", 3.5, "busy"), Attempt("b", 1.0, "gone"))
TEXT = "what was wrong, and what to do"


def tree(base):
    yield base
    for each in base.__subclasses__():
        yield from tree(each)


def made(kind):
    """An error with all that it can have, and one of each class that needs more than a text."""
    if issubclass(kind, BrokerError):
        error = kind("broker-a", RemotingCommand.response(17, "no such topic"))
        error.attempts = ATTEMPTS
        return error
    if issubclass(kind, RocketMQError):
        error = kind(TEXT, code=2, broker="a", attempts=ATTEMPTS)
        error.note = "an attribute of the application's"
        return error
    if kind in (remoting_errors.RemotingConnectError, remoting_errors.RemotingSendRequestError):
        return kind("127.0.0.1:1", "refused")
    return kind(1, "remark") if kind is remoting_errors.RequestError else kind(TEXT)


class PickleTests(SynchronousTestCase):
    def test_pickled_errors_keep_all_attributes(self):
        kinds = [
            kind
            for base in (RocketMQError, RemotingError)
            for kind in tree(base)
            if kind.__module__.startswith("rocketd.")
        ]
        self.assertGreater(len(kinds), 30)
        for kind in {*kinds, Reject, StopConsuming}:
            error = made(kind)
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                again = pickle.loads(pickle.dumps(error, protocol))
                self.assertIs(type(again), kind)
                self.assertEqual((str(again), again.args, vars(again)), (str(error), error.args, vars(error)), kind)

    def test_properties_are_those_of_the_class(self):
        refusal = pickle.loads(pickle.dumps(made(BrokerError)))
        self.assertEqual((refusal.code, refusal.broker, refusal.remark), (17, "broker-a", "no such topic"))
        self.assertEqual((refusal.attempts, refusal.retriable), (ATTEMPTS, False))
        self.assertIs(pickle.loads(pickle.dumps(UnreachableError(TEXT))).retriable, True)

    def test_retry_keeps_reason_and_delay(self):
        retry = pickle.loads(pickle.dumps(Retry(30, reason="the shop is closed")))
        self.assertEqual((str(retry), retry.delay_level), ("the shop is closed", 4))
