"""The entry point of the console script ``rocketd`` and of ``python -m rocketd``.

The module imports nothing itself, so that Ctrl-C ends the process quietly even while the other modules are being imported.
"""


def main() -> int:
    """Run the command line and return its exit status; 130 after Ctrl-C, unless the command handled it."""
    try:
        from rocketd.tools.cli import main as run_command_line

        return run_command_line()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
