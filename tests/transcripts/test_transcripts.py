"""Stories of several nodes as text: commands, `----`, what happened.

`REWRITE=1` records the outputs anew; a person reads the difference before it is kept.
A line `# covers EL-01 …` names scenarios of raft_scenarios.json.
"""

import os
from pathlib import Path

import pytest
from tests.transcripts.ring import Ring

HERE = Path(__file__).parent
STORIES = sorted(HERE.glob("*.txt"))


def play(text: str) -> str:
    """The text with every output replaced by what happens now."""
    ring = Ring()
    blocks: list[str] = []
    for block in text.strip().split("\n\n"):
        told = block.split("\n----\n")[0].removesuffix("\n----")
        output: list[str] = []
        for line in told.splitlines():
            if not line.startswith("#"):
                output += ring.command(line)
        blocks.append("\n".join([told, "----", *output]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    told = path.read_text()
    played = play(told)
    if os.environ.get("REWRITE") == "1":
        path.write_text(played)
    else:
        assert played == told


def test_there_are_enough_stories() -> None:
    assert len(STORIES) >= 25
