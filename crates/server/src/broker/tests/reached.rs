//! What runs of the simulated cluster came through.

/// A name and a count.
type Figure<'a> = (&'static str, &'a mut u64);

/// How often it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) seeds: u64,
    pub(super) publications: u64,
    pub(super) refused: u64,
    pub(super) deliveries: u64,
    pub(super) recovered: u64,
    pub(super) unrecovered: u64,
    /// Subscribers whose nodes were behind.
    pub(super) behind: u64,
    /// Subscribers whose nodes had not read the log up to its end in time.
    pub(super) not_joined: u64,
    pub(super) lost: u64,
    pub(super) histories: u64,
    pub(super) removals: u64,
    pub(super) elections: u64,
    pub(super) cut_logs: u64,
    pub(super) cut_connections: u64,
    pub(super) killed_nodes: u64,
    pub(super) stopped_nodes: u64,
    pub(super) by_channel: ReachedByChannel,
}

/// What nodes that hear by channel came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReachedByChannel {
    pub(super) wanted: u64,
    pub(super) unwanted: u64,
    pub(super) confirmed: u64,
    pub(super) recovered: u64,
    /// Those that were not empty.
    pub(super) histories: u64,
    /// Messages to a listener.
    pub(super) republished: u64,
    /// Of these, messages that came before.
    pub(super) repeated: u64,
    pub(super) late: u64,
    /// Messages that no leader sent, and those that were lost on their way.
    pub(super) unsent: u64,
    pub(super) unheard: u64,
    pub(super) lost_fences: u64,
    pub(super) broken_listeners: u64,
    /// Answers of servers that are behind.
    pub(super) stale: u64,
    /// How often nodes that choose came to hear single channels, and all of the log again.
    pub(super) changes_to_channels: u64,
    pub(super) changes_to_whole: u64,
}

impl Reached {
    fn all(&mut self) -> impl Iterator<Item = Figure<'_>> {
        let all = [
            ("seeds", &mut self.seeds),
            ("publications", &mut self.publications),
            ("refused", &mut self.refused),
            ("deliveries", &mut self.deliveries),
            ("recovered", &mut self.recovered),
            ("unrecovered", &mut self.unrecovered),
            ("behind", &mut self.behind),
            ("not_joined", &mut self.not_joined),
            ("lost", &mut self.lost),
            ("histories", &mut self.histories),
            ("removals", &mut self.removals),
            ("elections", &mut self.elections),
            ("cut_logs", &mut self.cut_logs),
            ("cut_connections", &mut self.cut_connections),
            ("killed_nodes", &mut self.killed_nodes),
            ("stopped_nodes", &mut self.stopped_nodes),
        ];
        all.into_iter().chain(self.by_channel.all())
    }

    pub(super) fn add(&mut self, other: &Self) {
        let mut other = *other;
        add(self.all(), other.all());
    }

    /// Asserts that nothing is simulated in vain.
    pub(super) fn check(mut self, is_by_channel: bool) {
        if !is_by_channel {
            self.by_channel.all().for_each(|(_, count)| *count += 1);
        }
        for (what, count) in self.all() {
            assert!(*count > 0, "no {what} in all seeds");
        }
    }
}

/// Adds one figure after the other.
fn add<'a>(sums: impl Iterator<Item = Figure<'a>>, more: impl Iterator<Item = Figure<'a>>) {
    for ((_, sum), (_, more)) in sums.zip(more) {
        *sum += *more;
    }
}

impl ReachedByChannel {
    pub(super) fn add(&mut self, other: &Self) {
        let mut other = *other;
        add(self.all(), other.all());
    }

    fn all(&mut self) -> impl Iterator<Item = Figure<'_>> {
        let all = [
            ("wanted", &mut self.wanted),
            ("unwanted", &mut self.unwanted),
            ("confirmed", &mut self.confirmed),
            ("recovered_by_channel", &mut self.recovered),
            ("histories_by_channel", &mut self.histories),
            ("republished", &mut self.republished),
            ("repeated", &mut self.repeated),
            ("late", &mut self.late),
            ("unsent", &mut self.unsent),
            ("unheard", &mut self.unheard),
            ("lost_fences", &mut self.lost_fences),
            ("broken_listeners", &mut self.broken_listeners),
            ("stale", &mut self.stale),
            ("changes_to_channels", &mut self.changes_to_channels),
            ("changes_to_whole", &mut self.changes_to_whole),
        ];
        all.into_iter()
    }
}
