"""The command line.

Exit statuses: 0 done, 1 done in part (what was refused is listed), 2 could not be done.
"""

from rectifier.cli import app


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
