"""Records as bytes: composing, encoding, checking, scanning and decoding messages of the commit log.

The package reads and makes bytes in memory. It does not touch files, clocks or threads.

- `record` declares the layout once and has the plain encoder and decoder.
- `compose` encodes a group of messages for an append. It is the hot path and is compiled if a C compiler is present.
- `record_scanner` walks a piece of the log for recovery and for a dispatcher that has fallen behind.
- `message` holds the values passed between the store and its callers.

The bytes are those of Apache 4.9; docs/formats describes them. A change here must keep `compose`, `record` and
`record_scanner` in agreement: the same message gives the same record and the same dispatch request.
"""
