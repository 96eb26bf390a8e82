"""Settings of brokers under test, rocketd's and Apache's alike, in more than one ring."""

from tests.support.patience import PATIENT

SMALL_FILES = {
    "mappedFileSizeCommitLog": "67108864",
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "diskMaxUsedSpaceRatio": "95",
}
QUICK = {
    **PATIENT,
    "enablePropertyFilter": "true",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1000",
    **SMALL_FILES,
}
"""Asks for unfinished transactions after a second."""

ACCOUNTS = """\
accounts:
- accessKey: adminKey
  secretKey: admin-secret
  admin: true
- accessKey: readerKey
  secretKey: reader-secret
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
"""
"""For conf/plain_acl.yml."""
