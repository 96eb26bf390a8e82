"""The broker as transactions see it."""

from typing import Protocol

from rocketd.broker.clients.parts import ClientParts
from rocketd.broker.transaction.service import TransactionService


class TransactionParts(ClientParts, Protocol):
    """Everything client requests use, and the transactions."""

    transactions: TransactionService
