"""Prints the pages of docs/ that are made from declarations: commands, errors and settings."""
