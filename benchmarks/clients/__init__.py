"""The client library compared with Apache's Java client and the C++ client's wheel; see `benchmarks.clients.compare`."""
