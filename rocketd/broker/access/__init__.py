"""Access control: accounts, permissions on records, and warnings of open access.

`access_control` is the hook that checks every request before its processor (docs/decisions/0016). It runs in the pools'
threads. Accounts are loaded and changed in the admin pool's thread. `record_rights` adds the topics of stored records
with ``aclStrict``, and `open_doors` warns at the start.
"""
