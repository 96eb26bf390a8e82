"""Name server and broker in this process, and the log lines they cause."""

from contextlib import asynccontextmanager
from unittest import mock

from twisted.logger import LogLevel, globalLogPublisher

from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.service import make_broker
from rocketd.common.logs import throttle as log_throttle
from rocketd.namesrv.service import make_namesrv
from rocketd.namesrv.settings import NamesrvSettings
from tests.support.patience import PATIENT

FLUSH = "rocketd.store.log.flush"
"""Namespace of warnings about flushes that take long."""


class LogLines:
    """Collects log events from warnings on while it is installed, but for those about a slow disk."""

    def __init__(self):
        self.events = []

    def __call__(self, event):
        level = event.get("log_level", LogLevel.info)
        is_slow_disk = level is LogLevel.warn and event.get("log_namespace") == FLUSH
        if level >= LogLevel.warn and not is_slow_disk:
            self.events.append(event)

    def __enter__(self):
        globalLogPublisher.addObserver(self)
        return self

    def __exit__(self, *_):
        globalLogPublisher.removeObserver(self)


def namesrv_in(directory, **options):
    settings, warnings = NamesrvSettings.load(
        overrides={
            "listenPort": "0",
            "kvConfigPath": f"{directory}/kvConfig.json",
            "configStorePath": f"{directory}/namesrv.properties",
            **options,
        }.items()
    )
    assert warnings == []
    return make_namesrv(settings)


def broker_in(directory, namesrv_address, **options):
    settings, warnings = BrokerSettings.load(
        overrides={
            "listenPort": "0",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "brokerName": "broker-a",
            "namesrvAddr": namesrv_address,
            "storePathRootDir": f"{directory}/store",
            "mappedFileSizeCommitLog": "1048576",
            "mappedFileSizeConsumeQueue": "60000",
            "diskMaxUsedSpaceRatio": "99",
            **PATIENT,
            **options,
        }.items()
    )
    assert warnings == []
    return make_broker(settings)


@asynccontextmanager
async def both_servers(directory, **options):
    """Run both, with a log that suppresses no line; `options` are settings of both."""
    with mock.patch.object(log_throttle, "INTERVAL", 0.0):
        async with _both_servers(directory, **options) as both:
            yield both


@asynccontextmanager
async def _both_servers(directory, **options):
    name_server = namesrv_in(directory, **options)
    name_server.startService()
    try:
        broker = broker_in(directory, f"127.0.0.1:{name_server.port}", **options)
        broker.startService()
        try:
            yield name_server, broker
        finally:
            await broker.stopService()
    finally:
        await name_server.stopService()
