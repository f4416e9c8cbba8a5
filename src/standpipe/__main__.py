"""`python -m standpipe` is `standpipe`."""

from standpipe.cli import main

main()
