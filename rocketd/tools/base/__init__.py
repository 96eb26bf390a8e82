"""Common parts of the commands: the client of a cluster, the run on the reactor, and the forms of output."""
