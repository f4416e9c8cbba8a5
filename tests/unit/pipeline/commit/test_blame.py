"""What a death is held against, and that no query is failed because of another one."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.pipeline.commit.blame import (
    DEATHS_MAX,
    Blame,
    Charge,
    Docket,
    Turns,
    after_death,
    cleared,
    retried,
)

CLEAR, SUSPECT, GUILTY = Blame.CLEAR, Blame.SUSPECT, Blame.GUILTY


@pytest.mark.parametrize(
    ("deaths", "verdicts", "why"),
    [
        ([], (CLEAR, CLEAR), "nothing has happened"),
        ([""], (CLEAR, CLEAR), "no query was in a batch"),
        (["A"], (SUSPECT, CLEAR), "one death may be due to anything"),
        (["A", "A"], (GUILTY, CLEAR), "two in a row, alone"),
        (["AB"], (SUSPECT, SUSPECT), "one of them, or neither"),
        (["AB", "AB", "AB"], (SUSPECT, SUSPECT), "never alone: held against neither"),
        (["AB", "A"], (SUSPECT, SUSPECT), "the first one counts for neither"),
        (["AB", "A", "A"], (GUILTY, SUSPECT), "B was never alone"),
        (["A", "+A", "A"], (SUSPECT, CLEAR), "a batch in between: not in a row"),
        (["A", "B", "A"], (GUILTY, SUSPECT), "A finished no batch in between"),
        (["A", "AB", "A"], (GUILTY, SUSPECT), "a shared death does not absolve"),
        (["a", "a", "a"], (SUSPECT, CLEAR), "whole drivers vanished: an operator, most likely"),
        (["a", "a", "a", "a"], (GUILTY, CLEAR), "four times, alone"),
        (["A", "a"], (SUSPECT, CLEAR), "a JVM and a whole driver"),
        (["A", "a", "a"], (GUILTY, CLEAR), "and another one"),
        (["ab", "ab", "a"], (SUSPECT, SUSPECT), "shared ones prove nothing either way"),
        (["A", "A", "+A"], (CLEAR, CLEAR), "an operator has cleared it"),
    ],
)
def test_what_deaths_prove(deaths: list[str], verdicts: tuple[Blame, Blame], why: str) -> None:
    docket = Docket()
    for death in deaths:
        if death.startswith("+"):
            docket = cleared(docket, death[1:])
        else:
            docket = after_death(
                docket, dict.fromkeys(death.upper(), 1), is_of_jvm=death.isupper() or not death
            )
    assert (docket.blame("A", 1), docket.blame("B", 1)) == verdicts, why


@pytest.mark.parametrize(
    ("known", "ended", "newest", "charged", "index", "why"),
    [
        (0, {"A": 5}, 9, "B", 5, "paused after its deaths: it is tried again"),
        (5, {"A": 5}, 9, "AB", 5, "a driver that starts reads it again: it died since then"),
        (5, {"A": 4, "B": 6}, 9, "A", 6, "only what is new"),
        (5, {"C": 7}, 9, "AB", 7, "another query"),
        (5, {}, 9, "AB", 5, "nothing was paused"),
        (50, {"A": 5}, 9, "B", 5, "an older copy of the log, or another cluster's"),
    ],
)
def test_what_a_pause_clears_it_clears_once(
    known: int, ended: dict[str, int], newest: int, charged: str, index: int, why: str
) -> None:
    docket = Docket(charges={each: Charge(revision=1) for each in "AB"}, log_index=known)
    found = retried(docket, ended, newest)
    assert ("".join(found.charges), found.log_index) == (charged, index), why


def test_another_revision_of_a_query_is_another_query() -> None:
    docket = after_death(after_death(Docket(), {"A": 1}, is_of_jvm=True), {"A": 1}, is_of_jvm=True)
    assert (docket.blame("A", 1), docket.blame("A", 2)) == (GUILTY, CLEAR)
    assert after_death(docket, {"A": 2}, is_of_jvm=True).charges == {
        "A": Charge(revision=2, deaths=1)
    }


@pytest.mark.parametrize(
    ("in_batch", "asks", "may", "why"),
    [
        ("", "a", [True], "nothing is in a batch"),
        ("ab", "c", [True], "clear ones run together"),
        ("", "S", [True], "a suspect, and nothing is in a batch"),
        ("a", "S", [False], "it waits until the batch has ended"),
        ("a", "Sb", [False, False], "nobody overtakes a suspect that waits"),
        ("a", "Sa", [False, True], "a batch that began may go on"),
        ("", "Sa", [True, False], "alone means alone"),
        ("", "ST", [True, False], "one suspect at a time"),
        ("", "SS", [True, True], "its start, then its batch"),
    ],
)
def test_who_may_be_in_a_batch(in_batch: str, asks: str, may: list[bool], why: str) -> None:
    """Capital letters are suspects."""
    turns = Turns()
    for each in in_batch:
        turns.begin(each, 1)
    answers: list[bool] = []
    for each in asks:
        answers.append(turns.may_begin(each, is_suspect=each.isupper()))
        if answers[-1]:
            turns.begin(each, 1)
    assert answers == may, why


def test_the_next_suspect_has_its_turn_when_the_first_ends() -> None:
    turns = Turns()
    assert turns.may_begin("S", is_suspect=True)
    turns.begin("S", 1)
    assert not turns.may_begin("T", is_suspect=True)
    turns.end("S")
    assert turns.may_begin("T", is_suspect=True)
    turns.end("T")  # it gives up its turn without a batch
    assert turns.may_begin("a", is_suspect=False)


class Driver:
    """A simulated driver that restarts for ever. Each query has `left` batches to do; a guilty one
    ends the driver in its batch number `poison`."""

    def __init__(self, random: Random, left: dict[str, int], poison: dict[str, int]) -> None:
        self.random, self.left, self.poison = random, left, poison
        self.done = dict.fromkeys(left, 0)
        self.docket = Docket()
        self.turns = Turns()
        self.deaths = 0

    def failed(self) -> set[str]:
        return {query for query in self.left if self.docket.blame(query, 1) is GUILTY}

    def step(self, query: str) -> None:
        if query in self.turns.in_batch:
            self._in_batch(query)
        elif self.left[query] > self.done[query]:
            is_suspect = self.docket.blame(query, 1) is SUSPECT
            if self.turns.may_begin(query, is_suspect=is_suspect):
                self.turns.begin(query, 1)

    def _in_batch(self, query: str) -> None:
        if self.poison.get(query) == self.done[query]:
            self.docket = after_death(self.docket, self.turns.in_batch, is_of_jvm=True)
            self.turns, self.deaths = Turns(), self.deaths + 1
            return
        self.done[query] += 1
        self.turns.end(query)
        self.docket = cleared(self.docket, [query])

    def run(self) -> None:
        for _ in range(100_000):
            failed = self.failed()
            open_ = [q for q in self.left if self.done[q] < self.left[q] and q not in failed]
            if not open_:
                return
            self.step(self.random.choice(open_))
        raise AssertionError("it never ends")


@given(
    st.randoms(use_true_random=False),
    st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=8),
)
def test_all_guilty_queries_are_failed_and_no_other_one(
    random: Random, drawn: list[tuple[int, bool]]
) -> None:
    left = {f"Q{n}": batches for n, (batches, _) in enumerate(drawn)}
    poison = {
        f"Q{n}": random.randrange(batches)
        for n, (batches, is_guilty) in enumerate(drawn)
        if is_guilty
    }
    driver = Driver(random, left, poison)
    driver.run()
    assert driver.failed() == set(poison)
    assert driver.deaths <= len(poison) * (1 + DEATHS_MAX), "a few deaths for each guilty query"
    others = [query for query in left if query not in poison]
    assert all(driver.done[query] == left[query] for query in others), "the others go on"


def test_a_death_from_outside_fails_no_query_that_runs_among_others() -> None:
    """An operator who kills the driver a hundred times, always while two queries are in a batch."""
    docket = Docket()
    for _ in range(100):
        docket = after_death(docket, {"A": 1, "B": 1}, is_of_jvm=False)
    assert {docket.blame(query, 1) for query in "AB"} == {SUSPECT}
