"""Access control: accounts, permissions, white addresses and signatures. Pure values in, a decision out."""
