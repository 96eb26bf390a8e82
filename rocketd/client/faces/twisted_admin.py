"""Administration of a cluster for Twisted."""

from collections.abc import AsyncIterator, Collection
from datetime import datetime

from rocketd.client import admin
from rocketd.client.consumer.retries.dead_letter_reader import DeadLetter, DeadLetterFilter, DeadLetterReader
from rocketd.client.faces.admin import AdminFace
from rocketd.client.faces.twisted_lifecycle import TwistedLifecycle, engines


class Admin(AdminFace, TwistedLifecycle):
    """Administration of a cluster: topics, groups, offsets, dead letters, and searches for messages."""

    __module__ = "rocketd.client"  # from which programs import it

    ask = engines(admin.AdminEngine.ask)
    brokers = engines(admin.AdminEngine.brokers)
    topics = engines(admin.AdminEngine.topics)
    create_topic = engines(admin.AdminEngine.create_topic)
    delete_topic = engines(admin.AdminEngine.delete_topic)
    fetch_publish_queues = engines(admin.AdminEngine.fetch_publish_queues)
    fetch_subscribe_queues = engines(admin.AdminEngine.fetch_subscribe_queues)
    max_offset = engines(admin.AdminEngine.max_offset)
    min_offset = engines(admin.AdminEngine.min_offset)
    search_offset = engines(admin.AdminEngine.search_offset)
    earliest_message_time = engines(admin.AdminEngine.earliest_message_time)
    view_message = engines(admin.AdminEngine.view_message)
    query_message = engines(admin.AdminEngine.query_message)
    query_message_by_unique_key = engines(admin.AdminEngine.query_message_by_unique_key)
    create_group = engines(admin.AdminEngine.create_group)
    delete_group = engines(admin.AdminEngine.delete_group)
    reset_offsets = engines(admin.AdminEngine.reset_offsets)
    topic_route = engines(admin.AdminEngine.topic_route)
    topic_stats = engines(admin.AdminEngine.topic_stats)
    topic_groups = engines(admin.AdminEngine.topic_groups)
    set_topic_permission = engines(admin.AdminEngine.set_topic_permission)
    groups = engines(admin.AdminEngine.groups)
    group_progress = engines(admin.AdminEngine.group_progress)
    consumers = engines(admin.AdminEngine.consumers)
    producers = engines(admin.AdminEngine.producers)
    clone_offsets = engines(admin.AdminEngine.clone_offsets)
    broker_status = engines(admin.AdminEngine.broker_status)
    broker_config = engines(admin.AdminEngine.broker_config)
    set_broker_config = engines(admin.AdminEngine.set_broker_config)
    wipe_write_permission = engines(admin.AdminEngine.wipe_write_permission)
    add_write_permission = engines(admin.AdminEngine.add_write_permission)
    clean_unused_topics = engines(admin.AdminEngine.clean_unused_topics)
    clean_expired_queues = engines(admin.AdminEngine.clean_expired_queues)
    namesrv_config = engines(admin.AdminEngine.namesrv_config)
    set_namesrv_config = engines(admin.AdminEngine.set_namesrv_config)
    kv_values = engines(admin.AdminEngine.kv_values)
    put_kv = engines(admin.AdminEngine.put_kv)
    delete_kv = engines(admin.AdminEngine.delete_kv)
    accounts = engines(admin.AdminEngine.accounts)
    set_account = engines(admin.AdminEngine.set_account)
    delete_account = engines(admin.AdminEngine.delete_account)
    white_addresses = engines(admin.AdminEngine.white_addresses)
    set_white_addresses = engines(admin.AdminEngine.set_white_addresses)
    redrive = engines(admin.AdminEngine.redrive)

    def dead_letters(
        self,
        group: str,
        *,
        exception: str | type[BaseException] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        ids: Collection[str] | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """Iterate over the dead letters of a group, all queues one after another.

        ``exception`` is a class, or its name with or without the module. ``since`` and ``until`` are the times from which
        on and before which a dead letter was stored. ``ids`` are ids of messages or of their places. Dead letters stored
        after the start of the iteration are left out. A few are held at a time, and no progress of any group changes.

        Raises IllegalGroupError and UsageError; during the iteration NoRouteError if the letters may not be read.
        """
        reader = self._engine.dead_letters(group, DeadLetterFilter(exception, since, until, ids))
        return self._pages(reader)

    async def _pages(self, reader: DeadLetterReader) -> AsyncIterator[DeadLetter]:
        while (page := await reader.next_page()) is not None:
            for letter in page:
                yield letter
