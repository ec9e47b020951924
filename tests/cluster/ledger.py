"""What was published, what was acknowledged, and what each subscriber got: and what is wrong with that.

The rules, for each channel:

* a subscriber gets offsets that rise within an epoch, and no publication twice, unless it was told of a loss in between: then it has the
  publication at the same offset, by which it can leave it out;
* all subscribers, and the publisher, know a publication by the same offset of the same epoch;
* a subscriber that was not told of a loss gets every acknowledged publication of its time;
* a reader of a stream that was not told of a loss reads each publication of its time once, in the order of the offsets, and is never told that
  its offset is none.

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


@dataclass
class Reading:
    """What one reader of a stream has read. It knows no offsets of single publications."""

    name: str
    channel: str
    # Numbers of publications in the order in which they were read since it began, or was told of a loss.
    got: list = field(default_factory=list)

    def begin(self):
        self.got.clear()


class Ledger:
    def __init__(self):
        self.publications = {}
        self.subscriptions = []
        self.readings = []
        self.faults = []
        self.counts = Counter()

    def subscription(self, name, channel):
        one = Subscription(name, channel)
        self.subscriptions.append(one)
        return one

    def reading(self, name, channel):
        one = Reading(name, channel)
        self.readings.append(one)
        return one

    def note_read(self, reading, number):
        if number in reading.got:
            self.faults.append(f"{reading.name}, channel {reading.channel}: publication {number} was read twice")
        reading.got.append(number)
        self.counts["read"] += 1

    def unread(self):
        """Acknowledged publications that a reader should have read, and has not; and what was read in another order."""
        for reading in self.readings:
            places = {number: self.publications[number].position for number in reading.got if number in self.publications}
            known = [places[number] for number in reading.got if places.get(number)]
            # Epochs have no order. Within one, offsets rise.
            for before, after in zip(known, known[1:]):
                if before[0] == after[0] and before[1] >= after[1]:
                    yield f"{reading.name}, channel {reading.channel}: {after} was read after {before}"
            if not known:
                continue
            for number, publication in self.publications.items():
                position = publication.position
                is_later = position and position[0] == known[0][0] and position[1] > known[0][1]
                if publication.channel == reading.channel and is_later and number not in places:
                    yield f"{reading.name}, channel {reading.channel}: publication {number} at {position} was never read"

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
        faults.extend(self.unread())
        return faults
