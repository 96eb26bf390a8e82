"""``rocketd doctor``: find faults of this machine, of a broker's settings and store, and of a cluster.

- `findings`: a finding with its remedy, and the output.
- `machine`: facts of this machine, read once.
- `local`: findings from these facts, from the settings and the store.
- `security`: findings about secrets, certificates and open access.
- `cluster`: findings from the answers of name servers and brokers.
- `bundle`: a file with all of it, for those who help.
- `command`: the command.
"""
