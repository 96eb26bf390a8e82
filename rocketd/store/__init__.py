"""The storage engine: Apache's files, byte for byte."""
