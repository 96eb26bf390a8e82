"""Commands of ``rocketd`` that look at a cluster and change it: groups, offsets, settings and accounts.

Each module is one word of the command line. Counterpart: the commands of mqadmin (Apache).
"""
