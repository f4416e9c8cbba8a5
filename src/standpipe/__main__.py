"""`standpipe` and `python -m standpipe`: the command line, which the extra `server` brings."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command. Where only the client is installed, say what is missing; status 1."""
    try:
        from standpipe.local.cli import main as commands
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "standpipe":
            raise
        sys.exit(
            f"{error.name} is not installed: this is Standpipe's client alone. "
            "For the commands and the server: pip install 'standpipe[server]', and [spark] for the "
            "pipeline."
        )
    commands.main()


if __name__ == "__main__":
    main()
