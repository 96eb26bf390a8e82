"""Settings of brokers in tests: if the machine hangs for some seconds, no message is refused."""

PATIENT = {
    "brokerFastFailureEnable": "false",
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
    "syncFlushTimeout": "60000",
}
