"""`python -m standpipe` is `standpipe`."""

from standpipe.local.cli.main import main

main()
