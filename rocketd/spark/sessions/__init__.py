"""Spark sessions that work where pip put Spark: a fitting Java, quiet logs, the right interpreter in the workers."""
