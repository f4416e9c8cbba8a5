"""The page of states: whole tables, a reason in each row, and diagrams that match them."""

import pytest

from standpipe.control.raft import roles
from standpipe.local.docgen.states import (
    MACHINES,
    StateChange,
    StateMachine,
    changes,
    event_meanings,
    page,
    row_notes,
)

SOURCE = '''
class Event(Enum):
    """Not a member's."""

    OPENED = auto()  # the door
    #: not beside it
    SHUT = auto()
    HELD = "held"
    """By a wedge,
    for a while."""


class Other(Enum):
    SHUT = auto()  # of another enumeration


NEXT: Final = {
    (_S.OUT, _E.OPENED): _S.IN,  # nobody home
    (_S.IN, _E.OPENED): _S.IN,
    (
        _S.IN,
        _E.SHUT,
    ): _S.OUT,  # on several lines
    **{(state, _E.HELD): _S.IN for state in _S},  # not one row
}
OTHER: Final = {(_S.OUT, _E.SHUT): _S.IN}  # not the table
'''


def test_notes_stand_beside_their_rows() -> None:
    assert row_notes(SOURCE) == {
        ("OUT", "OPENED"): "nobody home",
        ("IN", "SHUT"): "on several lines",
    }


def test_meanings_are_docstrings_or_comments() -> None:
    assert event_meanings(SOURCE, "Event") == {
        "OPENED": "the door",
        "HELD": "By a wedge, for a while.",
    }


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.title)
def test_each_row_of_the_table_is_there_and_says_why(machine: StateMachine) -> None:
    rows = changes(machine)
    assert len({(row.state, row.event) for row in rows}) == len(machine.module.NEXT)
    assert [row for row in rows if not row.why] == []


def test_a_row_in_words() -> None:
    raft = next(machine for machine in MACHINES if machine.module is roles)
    assert StateChange(
        "prospective", "majority", "candidate", "the only place where an epoch grows"
    ) in changes(raft)


@pytest.mark.parametrize(
    ("line", "is_there", "why"),
    [
        ("    [*] --> unattached", True, "where it starts"),
        ("    leader --> resigned: quorum lost, resigns", True, "one arrow for two events"),
        ("    observer --> observer: ", False, "an event that changes nothing is in the table"),
        ("| observer | granted | observer |", True, "there it is"),
        ("    RUNNING --> ABSENT: CLOSED", True, "rows that a comprehension made"),
    ],
)
def test_lines_of_the_page(line: str, is_there: bool, why: str) -> None:
    assert any(each.startswith(line) for each in page().splitlines()) is is_there, why
