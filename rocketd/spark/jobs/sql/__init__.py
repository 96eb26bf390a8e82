"""The job that runs a file of Spark SQL over topics.

`text` splits the file into statements and finds the names in it. `job` registers the named topics as streaming views,
starts a query for each statement, and waits for all of them.
"""
