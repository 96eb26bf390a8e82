"""Access control: accounts, permissions, white addresses and signatures.

`plain_file` reads a file of accounts, `manager` all files together. The result is an immutable `rules.Rules`: pool
threads check requests with it while a new one is prepared. The order of checks is Apache's: white addresses, account,
signature, permissions. See docs/decisions/0016 and docs/howto/access-control.md.
"""
