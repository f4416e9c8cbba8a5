"""Members of a group that are several batches ahead of others, on real files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.pipeline.run.group.test_groups import WANTED, by_id, group_of

from standpipe.data.commit.takeover import furthest_behind
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.commit.checkpoint import Checkpoint
from standpipe.pipeline.commit.query_group import write_group
from standpipe.pipeline.failures import NotYet
from standpipe.pipeline.run.group.groups import Groups
from standpipe.pipeline.run.group.wanted_run import WantedRun
from standpipe.pipeline.run.start.checkpoints import checkpoint_of, claimed, let_apart_leave

SERVICE = "s_"


def newest(name: str, batch: int) -> Progress:
    """Batch n covers the source up to 10 n."""
    commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(batch), attempt=1)
    return Progress(
        query_id=WANTED[name].query_id, commit=commit, sources={"s": {0: 10 * batch}}, sinks={}
    )


class Story:
    """A group of A and B whose driver has finished the batches up to `finished`."""

    def __init__(self, folder: Path, finished: int) -> None:
        self.folder, self.group = folder, group_of("A", "B")
        write_group(self.group, folder)
        self.groups = Groups(folder, SERVICE)
        self.run = WantedRun(members=tuple(by_id("A", "B").values()), group=self.group)
        self.own = [claimed(each, folder, SERVICE) for each in self.run.members]
        self.checkpoint = checkpoint_of(self.run, self.own, folder)
        for log in ("offsets", "commits", "state"):
            (self.checkpoint.directory / log).mkdir(parents=True)
        for batch in range(finished + 1):
            text = f'v1\n{{}}\n{{"s":{{"0":{10 * batch}}}}}'
            (self.checkpoint.directory / "offsets" / str(batch)).write_text(text)
            (self.checkpoint.directory / "commits" / str(batch)).write_text("v1\n{}")

    def take_over(self, *batches: Progress) -> None:
        self.checkpoint.inherit(*batches)
        let_apart_leave(self.run, self.own, batches, self.checkpoint, self.groups)

    def alone(self, number: int) -> Checkpoint:
        """Of a member that has left."""
        root = self.group.root(self.folder)
        return Checkpoint(self.own[number].root, LeaseEpoch(9), group_root=root)


def test_each_goes_on_from_what_it_has(tmp_path: Path) -> None:
    """B was fenced after batch 5, and the zombie committed A until batch 8. Replayed by the group,
    batch 8 would have covered other events than A has in it: some would be lost, or count twice."""
    story = Story(tmp_path, finished=8)
    ahead, behind = newest("A", 8), newest("B", 5)
    with pytest.raises(NotYet, match="was ahead of the others"):
        story.take_over(ahead, behind)
    assert story.groups.current(story.group.group_id).together == ()
    for number, each in enumerate((ahead, behind)):
        checkpoint = story.alone(number)
        checkpoint.inherit(each)
        checkpoint.roll_back(furthest_behind([each]))
        assert checkpoint.offsets(each.commit.batch).ends == each.sources
        assert checkpoint.next_batch(each.commit.batch) == each.commit.batch + 1


@pytest.mark.parametrize("ahead", [5, 6])
def test_one_batch_more_is_replayed_as_it_was(tmp_path: Path, ahead: int) -> None:
    story = Story(tmp_path, finished=6)
    story.take_over(newest("A", ahead), newest("B", 5))
    story.checkpoint.roll_back(BatchId(5))
    assert story.groups.current(story.group.group_id).together == story.group.together
    assert story.checkpoint.offsets(6).ends == {"s": {0: 60}}
