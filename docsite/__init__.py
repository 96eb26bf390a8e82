"""The documentation site: the hooks of its build."""
