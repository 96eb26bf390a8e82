"""Requests to end a transaction, by the producer or in answer to a broker's check.

Counterpart: `DefaultMQProducerImpl.endTransaction` and `checkTransactionState` (Apache). Pure functions. A state is one of
TRANSACTION_COMMIT, TRANSACTION_ROLLBACK and TRANSACTION_NOT, which leaves the half message undecided.
"""

from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader, EndTransactionRequestHeader


def end_header(
    group: str,
    broker_name: str,
    state: int,
    *,
    state_offset: int,
    commit_log_offset: int,
    unique_key: str,
    transaction_id: str | None,
) -> EndTransactionRequestHeader:
    """Return the header to end a transaction of this producer group.

    ``state_offset`` is the queue offset of the half message, ``commit_log_offset`` the offset of its record.
    """
    return EndTransactionRequestHeader(
        producer_group=group,
        tran_state_table_offset=state_offset,
        commit_log_offset=commit_log_offset,
        commit_or_rollback=state,
        msg_id=unique_key,
        transaction_id=transaction_id or unique_key,
        bname=broker_name,
    )


def check_answer_header(
    group: str, asked: CheckTransactionStateRequestHeader, state: int, unique_key: str
) -> EndTransactionRequestHeader:
    """Return the header to answer a broker's check of a half message with this unique key."""
    return EndTransactionRequestHeader(
        producer_group=group,
        tran_state_table_offset=asked.tran_state_table_offset,
        commit_log_offset=asked.commit_log_offset,
        commit_or_rollback=state,
        msg_id=unique_key,
        from_transaction_check=True,
        transaction_id=asked.transaction_id,
    )
