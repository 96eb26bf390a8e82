"""Names of the properties that brokers and clients set, for ``get_property``."""

from enum import Enum

from rocketd.common import properties as names


class MessageProperty(Enum):
    """The names that applications read."""

    TRACE_SWITCH = names.TRACE_ON
    MSG_REGION = names.MSG_REGION
    KEYS = names.KEYS
    TAGS = names.TAGS
    WAIT_STORE_MSG_OK = names.WAIT
    DELAY_TIME_LEVEL = names.DELAY
    RETRY_TOPIC = names.RETRY_TOPIC
    REAL_TOPIC = names.REAL_TOPIC
    REAL_QUEUE_ID = names.REAL_QID
    TRANSACTION_PREPARED = names.TRAN_MSG
    PRODUCER_GROUP = names.PGROUP
    MIN_OFFSET = names.MIN_OFFSET
    MAX_OFFSET = names.MAX_OFFSET
    BUYER_ID = names.BUYER_ID
    ORIGIN_MESSAGE_ID = names.ORIGIN_MESSAGE_ID
    TRANSFER_FLAG = names.TRANSFER_FLAG
    CORRECTION_FLAG = names.CORRECTION_FLAG
    MQ2_FLAG = names.MQ2_FLAG
    RECONSUME_TIME = names.RECONSUME_TIME
    UNIQ_CLIENT_MESSAGE_ID_KEYIDX = names.UNIQ_KEY
    MAX_RECONSUME_TIMES = names.MAX_RECONSUME_TIMES
    CONSUME_START_TIMESTAMP = names.CONSUME_START_TIME
