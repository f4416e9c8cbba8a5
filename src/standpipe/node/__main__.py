"""`python -m standpipe.node --node-file FILE`: what `standpipe node` does, without its options."""

import sys

# structlog imports rich for colours if it is installed; a node writes JSON, and rich takes a tenth
# of a second of each start.
sys.modules.setdefault("rich", None)  # pyright: ignore[reportArgumentType]

if __name__ == "__main__":
    from standpipe.node.supervisor.parent import main

    sys.exit(main())
