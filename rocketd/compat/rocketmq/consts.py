"""Names of the properties that brokers and clients set, for ``get_property``."""

from enum import Enum

from rocketd.common import message_properties as props


class MessageProperty(Enum):
    """The names that applications read."""

    TRACE_SWITCH = props.TRACE_ON
    MSG_REGION = props.MSG_REGION
    KEYS = props.KEYS
    TAGS = props.TAGS
    WAIT_STORE_MSG_OK = props.WAIT
    DELAY_TIME_LEVEL = props.DELAY
    RETRY_TOPIC = props.RETRY_TOPIC
    REAL_TOPIC = props.REAL_TOPIC
    REAL_QUEUE_ID = props.REAL_QID
    TRANSACTION_PREPARED = props.TRAN_MSG
    PRODUCER_GROUP = props.PGROUP
    MIN_OFFSET = props.MIN_OFFSET
    MAX_OFFSET = props.MAX_OFFSET
    BUYER_ID = props.BUYER_ID
    ORIGIN_MESSAGE_ID = props.ORIGIN_MESSAGE_ID
    TRANSFER_FLAG = props.TRANSFER_FLAG
    CORRECTION_FLAG = props.CORRECTION_FLAG
    MQ2_FLAG = props.MQ2_FLAG
    RECONSUME_TIME = props.RECONSUME_TIME
    UNIQ_CLIENT_MESSAGE_ID_KEYIDX = props.UNIQ_KEY
    MAX_RECONSUME_TIMES = props.MAX_RECONSUME_TIMES
    CONSUME_START_TIMESTAMP = props.CONSUME_START_TIME
