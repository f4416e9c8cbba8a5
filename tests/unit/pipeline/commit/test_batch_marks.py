"""Marks on disk: what a driver that is killed leaves behind, and who counts it."""

import os
import signal
import threading
from pathlib import Path

import pytest

from standpipe.pipeline.commit.batch_marks import FOLDER, BatchMarks
from standpipe.pipeline.commit.blame import Blame

SERVICE = "s_"


def driver(checkpoints: Path, name: str) -> BatchMarks:
    marks = BatchMarks()
    marks.start(checkpoints, SERVICE, name)
    return marks


def killed(checkpoints: Path, name: str, *queries: str) -> None:
    """A process that marks queries as in a batch, and is killed; forked, as a start takes longer
    than all that it does."""
    child = os.fork()
    if child == 0:
        try:
            marks = driver(checkpoints, name)
            marks.try_begin("with-a-longer-name", 1)
            marks.end("with-a-longer-name")
            for each in queries:
                marks._turns.begin(each, 1)
            marks.lost_jvm()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def verdicts(marks: BatchMarks, *queries: str) -> list[Blame]:
    return [marks.blame(query, 1) for query in queries]


def test_the_death_of_a_process_is_counted_once(tmp_path: Path) -> None:
    killed(tmp_path, "one", "A")
    first = driver(tmp_path, "two")
    assert first.docket.charges["A"].deaths == 1
    first.count_deaths()
    second = driver(tmp_path, "three")
    assert second.docket.charges["A"].deaths == 1
    assert verdicts(second, "A", "B") == [Blame.SUSPECT, Blame.CLEAR]


def test_a_second_death_in_a_row_fails_the_query_for_every_driver(tmp_path: Path) -> None:
    other = driver(tmp_path, "other")
    killed(tmp_path, "one", "A")
    killed(tmp_path, "two", "A")
    assert verdicts(driver(tmp_path, "three"), "A") == [Blame.GUILTY]
    other.count_deaths()
    assert verdicts(other, "A") == [Blame.GUILTY]


def test_queries_that_were_in_a_batch_together_are_suspects(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        killed(tmp_path, name, "A", "B")
    marks = driver(tmp_path, "four")
    assert verdicts(marks, "A", "B") == [Blame.SUSPECT] * 2
    assert marks.try_begin("A", 1)
    assert not marks.try_begin("B", 1), "one at a time"
    assert not marks.try_begin("C", 1), "nothing runs beside a suspect"
    marks.finished("A")
    assert verdicts(driver(tmp_path, "five"), "A", "B") == [Blame.CLEAR, Blame.SUSPECT]
    assert marks.try_begin("B", 1)


def test_a_driver_that_vanished_counts_less(tmp_path: Path) -> None:
    killed(tmp_path, "one", "A")
    path = next((tmp_path / FOLDER / SERVICE).glob("one*"))
    path.write_text(path.read_text().replace("true", "false"))
    charge = driver(tmp_path, "two").docket.charges["A"]
    assert (charge.deaths, charge.vanished) == (0, 1)


@pytest.mark.parametrize("how", ["alive", "in order", "no batch"])
def test_what_is_no_death(tmp_path: Path, how: str) -> None:
    if how == "no batch":
        killed(tmp_path, "one")
    else:
        one = driver(tmp_path, "one")
        assert one.try_begin("A", 1)
        if how == "in order":
            one.close()
    assert driver(tmp_path, "two").docket.charges == {}, how


def test_a_query_waits_for_the_suspect_and_for_no_longer(tmp_path: Path) -> None:
    killed(tmp_path, "one", "S")
    marks = driver(tmp_path, "two")
    assert marks.begin("S", 1, lambda: False)
    began = threading.Event()

    def batch() -> None:
        if marks.begin("A", 1, lambda: False):
            began.set()

    thread = threading.Thread(target=batch)
    thread.start()
    assert marks.alone() == "S"
    assert not began.is_set()
    marks.finished("S")
    thread.join(10)
    assert began.is_set()
    assert not marks.begin("B", 1, lambda: True), "a query that was stopped does not begin"


def test_what_spark_said_before_a_batch_began_does_not_unmark_it() -> None:
    marks = BatchMarks()
    assert marks.try_begin("A", 1)  # its start
    marks.idle("A")
    assert marks._turns.in_batch == {}
    assert marks.begin("A", 1, lambda: False)
    marks.idle("A")
    assert marks._turns.in_batch == {"A": 1}


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff" * 50], ids=str)
def test_files_that_cannot_be_read_hold_nothing_against_anyone(
    tmp_path: Path, content: bytes
) -> None:
    folder = tmp_path / FOLDER / SERVICE
    folder.mkdir(parents=True)
    (folder / "docket.json").write_bytes(content)
    (folder / "dead.marks").write_bytes(content)
    marks = driver(tmp_path, "one")
    assert marks.docket.charges == {}
    assert marks.try_begin("A", 1)
    assert not (folder / "dead.marks").exists()


def test_a_death_is_not_forgotten_where_it_could_not_be_noted(tmp_path: Path) -> None:
    """On a full disk the marks were removed, and the docket was not written."""
    killed(tmp_path, "one", "A")
    in_the_way = tmp_path / FOLDER / SERVICE / "docket.json.tmp"
    in_the_way.mkdir()
    driver(tmp_path, "two").close()
    in_the_way.rmdir()
    assert driver(tmp_path, "three").docket.charges["A"].deaths == 1


def test_without_a_folder_it_works_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / FOLDER).write_text("a file where the folder should be")
    marks = driver(tmp_path, "one")
    assert "held against no query" in capsys.readouterr().out
    assert marks.begin("A", 1, lambda: False)
    marks.finished("A")
    marks.close()
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER]
