"""The framework of every ``rocketd`` command, on click.

- `commands`: commands, groups whose commands are imported when one is run, and the run of a command line.
- `errors`: the errors that end a command with one line.
- `option_types`: checks of values, such as numbers with bounds.
- `output`: lines and tables on standard output, complaints on standard error.

A value that is refused is a `click.UsageError` or `click.BadParameter`: one line, and exit status 2. A command that fails
raises `CommandError`: one line, and the error's exit status. The twistd plugins have their command line from
`rocketd.common.process.daemon_options`.
See docs/decisions/0027-commands-on-click.md.
"""
