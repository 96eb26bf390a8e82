"""``rocketd adopt`` and ``rocketd give-back``: check a broker's store and settings before it changes hands.

- `place`: the store, the configuration file and the installation behind the argument.
- `given_settings`: each setting of the file, and its effect in rocketd.
- `lacking`: features of Apache's broker in use, without a counterpart in rocketd.
- `accounts`: the account files.
- `own`: settings and files that only rocketd has, and their fate in Apache's broker.
- `proof`: the records, queues and index of the store, all read.
- `tables`: its tables and offsets.
- `numbers`: the numbers of the store.
- `next_steps`: the commands of the switch.
- `report`: the output.
- `command`: both commands.

Nothing here writes into the store. Its lock file is only locked, as a broker locks it.
"""
