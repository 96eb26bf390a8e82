"""Share one blocking producer among the threads of a web server or a pool."""

import sys
from concurrent.futures import ThreadPoolExecutor

from rocketd.client import Message
from rocketd.client.sync import Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR

with Producer("example_threads_producer", CLUSTER, send_timeout=30) as producer, ThreadPoolExecutor(8) as pool:
    messages = [Message("ExampleThreads", b"%d" % number) for number in range(100)]
    results = list(pool.map(producer.send, messages))
print(len({result.msg_id for result in results}), "messages by 8 threads")
