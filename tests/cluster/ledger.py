"""What was published, what was acknowledged, and what each subscriber got: and what is wrong with that.

The rules, for each channel:

* a subscriber gets offsets that rise within an epoch, and no publication twice, unless it was told of a loss in between: then it has the
  publication at the same offset, by which it can leave it out;
* all subscribers, and the publisher, know a publication by the same offset of the same epoch;
* a subscriber that was not told of a loss gets every acknowledged publication of its time.

A subscriber *is told of a loss* by an answer `recovered: false` or by a subscription that ends with 2500. Its time begins again then.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass
class Publication:
    channel: str
    # Whether its publisher was told that it is stored, and where.
    position: tuple = None
    refused: bool = False


@dataclass
class Subscription:
    """What one subscriber knows of one channel."""

    name: str
    channel: str
    epoch: str = ""
    offset: int = 0
    # (epoch, offset) by the number of the publication.
    got: dict = field(default_factory=dict)
    # Positions at which its time began: what came before may be missing.
    begins: list = field(default_factory=list)
    # By the number of a publication: how often the time had begun when it came.
    got_in: dict = field(default_factory=dict)


class Ledger:
    def __init__(self):
        self.publications = {}
        self.subscriptions = []
        self.faults = []
        self.counts = Counter()

    def subscription(self, name, channel):
        one = Subscription(name, channel)
        self.subscriptions.append(one)
        return one

    def note_sent(self, number, channel):
        self.publications[number] = Publication(channel)
        self.counts["sent"] += 1

    def note_acknowledged(self, number, position):
        self.publications[number].position = position
        self.counts["acknowledged"] += 1

    def note_begin(self, subscription, epoch, offset, why):
        """A subscriber begins, or was told that it has lost something."""
        subscription.epoch, subscription.offset = epoch, offset
        subscription.begins.append((epoch, offset))
        self.counts[f"began: {why}"] += 1

    def note_received(self, subscription, number, offset):
        where = f"{subscription.name}, channel {subscription.channel}"
        if offset <= subscription.offset:
            self.faults.append(f"{where}: offset {offset} came after {subscription.offset}")
        again = number in subscription.got
        is_known = subscription.got.get(number) == (subscription.epoch, offset)
        if again and is_known and subscription.got_in[number] < len(subscription.begins):
            self.counts["again after a loss"] += 1
        elif again:
            self.faults.append(f"{where}: publication {number} came twice, at {subscription.got[number]} and {offset}")
        subscription.offset = max(subscription.offset, offset)
        subscription.got[number] = (subscription.epoch, offset)
        subscription.got_in[number] = len(subscription.begins)
        self.counts["received"] += 1

    def missing(self):
        """Acknowledged publications that a subscriber should have got, and has not."""
        by_channel = defaultdict(list)
        for number, publication in self.publications.items():
            if publication.position:
                by_channel[publication.channel].append((number, publication.position))
        for subscription in self.subscriptions:
            for number, (epoch, offset) in by_channel[subscription.channel]:
                if number in subscription.got:
                    continue
                # It is missing unless the subscriber's time began behind it, after it was told of a loss.
                later = [begin for begin in subscription.begins if begin[0] == epoch and begin[1] >= offset]
                first = subscription.begins[0] if subscription.begins else None
                is_before = first is not None and first[0] == epoch and offset <= first[1]
                other_epoch = any(begin[0] != epoch for begin in subscription.begins)
                if not later and not is_before and not other_epoch:
                    yield f"{subscription.name}, channel {subscription.channel}: publication {number} at {offset} never came"

    def judge(self):
        """All that is wrong."""
        faults = list(self.faults)
        places = {}
        for number, publication in self.publications.items():
            if publication.position:
                places[number] = publication.position
        for subscription in self.subscriptions:
            for number, position in subscription.got.items():
                known = places.setdefault(number, position)
                if known != position:
                    begins = ", ".join(f"{epoch} {offset}" for epoch, offset in subscription.begins)
                    faults.append(
                        f"publication {number} is at {known} and, for {subscription.name} (which began at {begins}), at {position}"
                    )
        faults.extend(self.missing())
        return faults
