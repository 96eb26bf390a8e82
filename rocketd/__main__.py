"""Where the console script ``rocketd`` and ``python -m rocketd`` begin.

Answers to the first lines of Apache's shell scripts. It imports nothing itself: from its call on, Ctrl-C ends the process
quietly, also while everything else is being imported.
"""


def main() -> int:
    """Run the command line and return its exit status; 130 after Ctrl-C, unless the command made something of it."""
    try:
        from rocketd.tools.cli import main as run_command_line

        return run_command_line()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
