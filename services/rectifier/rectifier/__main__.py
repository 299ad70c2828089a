"""The command line: ``rectifier serve`` and the tools beside it. Exit statuses: 0 done, 1 done in
part (the refused lines are listed), 2 could not be done."""

from rectifier.cli import app


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
