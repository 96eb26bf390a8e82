"""Common ground of the store: settings, errors, file names, and the interface to the file system.

This package knows nothing of messages. The disk is reached only through `filesystem.IFileSystem`, so tests can replace it
by a faulty one. Names and sizes of files are declared in `layout`, errors in `errors`. Each error text names the file,
the value found and the next step.
"""
