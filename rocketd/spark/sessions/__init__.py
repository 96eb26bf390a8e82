"""Spark sessions that work with PySpark as installed by pip.

`build` starts a session, or returns the active one. `java` finds a suitable Java, and `gateway` starts it, apart from
the terminal's Ctrl-C and without its noise. `confs` is the table of settings that differ from Spark's defaults.
`workers` makes sure that the workers' Python has rocketd, and `package_zip` packs the sources for a cluster. `unwrap` finds
the message inside Spark's exceptions, and `stop` ends queries and sessions.
"""
