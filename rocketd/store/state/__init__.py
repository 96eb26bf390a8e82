"""Small files that tell the next start how the last run ended and how far it came.

- `checkpoint`: store times and log offsets known to be on disk.
- `last_stop`: whether the store was closed, its process was killed, or the system crashed (file `abort`).
- `deletions` and `deletion_file`: topics deleted while their messages are still in the log.
- `kept_settings`: settings changed by requests.

Each file is either replaced as a whole or written in place within one sector, so a crash leaves the old or the new
content. The reasons are in docs/decisions/0010 and 0011.
"""
