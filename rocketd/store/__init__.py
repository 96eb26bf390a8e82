"""The storage engine: Apache's files, byte for byte.

Subpackages, lower ones first; an import only goes down:

- `base`: settings, errors, file names, the file system.
- `format`: records as bytes.
- `state`: small files about the last run.
- `log`: the commit log, its flush, and its copy on slaves.
- `index`: messages by key.
- `queue`: consume queues and dispatch.
- `upkeep`: deletion of expired files, full disks, flushes of queues.
- `recovery`: opening a store after a stop, a crash or a loss of files.
- `offline`: examining and repairing a stopped store.

At the top, `message_store.MessageStore` joins the parts and orders their start and stop; `reader` serves reads;
`interfaces` is the view of extensions; `testing` has a faulty disk for tests.

A message passes `MessageStore.put_messages`, `log.append` and `format.compose` on the storage thread, then
`queue.dispatch` on the dispatching thread, which makes it visible. The threads are listed in docs/architecture.md.
"""
