"""The exceptions of the wheels. The cause of each is an error of rocketd's client."""


class RocketMQException(Exception):
    """Base of all others."""


class NullPointerException(RocketMQException):
    """Never raised here."""


class MallocFailed(RocketMQException):
    """Never raised here."""


class ProducerException(RocketMQException):
    """An error of a producer."""


class ProducerStartFailed(ProducerException):
    """A producer could not be started."""


class ProducerSendSyncFailed(ProducerException):
    """A message was not sent."""


class ProducerSendOnewayFailed(ProducerException):
    """A one-way message was not sent."""


class ProducerSendOrderlyFailed(ProducerException):
    """A message to a chosen queue was not sent."""


class ProducerSendAsyncFailed(ProducerException):
    """A message was not sent. The argument of the callback of ``send_async``."""


class ConsumerException(RocketMQException):
    """An error of a consumer."""


class PushConsumerStartFailed(ConsumerException):
    """A push consumer could not be started."""


class PullConsumerStartFailed(ConsumerException):
    """A pull consumer could not be started."""


class PullConsumerFetchMQFailed(ConsumerException):
    """The queues of a topic are unknown."""


class PullConsumerFetchMessageFailed(ConsumerException):
    """A queue could not be read."""
