"""Writing to topics: rows made messages, and three ways to deliver them.

Nothing here is imported by a read. What runs in tasks imports neither Twisted nor, but for `writers`, PySpark.
"""
