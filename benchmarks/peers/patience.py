"""What brokers of tests are told: a machine that hangs for some seconds is no reason to refuse a message."""

PATIENT = {
    "brokerFastFailureEnable": "false",
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
    "syncFlushTimeout": "60000",
}
