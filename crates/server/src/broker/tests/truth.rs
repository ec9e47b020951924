//! All that a simulated log ever had, against which what nodes and clients say is held.

/// What stands in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A publication, by its number.
    Publication(u64),
    /// The removal of a channel's history.
    Removal,
    /// A beat, or what a stranger wrote.
    Other,
}

/// An entry of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    pub(super) sequence: u64,
    /// The channel's number, if it is about one.
    pub(super) channel: Option<usize>,
    pub(super) what: What,
}

/// A log in all its lives. It begins another one when its servers come back without its end.
#[derive(Debug)]
pub(super) struct Truth {
    /// Each with what it has of the one before.
    lives: Vec<Vec<Fact>>,
}

impl Default for Truth {
    fn default() -> Self {
        Self {
            lives: vec![Vec::new()],
        }
    }
}

impl Truth {
    pub(super) fn append(&mut self, fact: Fact) {
        let life = self.lives.last_mut().expect("there is always one");
        assert!(life.last().is_none_or(|last| last.sequence < fact.sequence));
        life.push(fact);
    }

    /// What stands behind that place has gone, and others come there.
    pub(super) fn cut(&mut self, after: u64) {
        let mut next = self.newest().to_vec();
        next.retain(|fact| fact.sequence <= after);
        self.lives.push(next);
    }

    /// Whether nothing was ever lost.
    pub(super) fn is_whole(&self) -> bool {
        self.lives.len() == 1
    }

    fn newest(&self) -> &[Fact] {
        self.lives.last().expect("there is always one")
    }

    /// What stands at a place now, or stood there until it was too old.
    pub(super) fn at(&self, sequence: u64) -> Option<Fact> {
        let life = self.newest();
        let at = life.binary_search_by_key(&sequence, |fact| fact.sequence);
        at.ok().map(|at| life[at])
    }

    /// Whether a publication stands there in some life.
    pub(super) fn has(&self, publication: u64, sequence: u64) -> bool {
        let is_it =
            |fact: &Fact| fact.sequence == sequence && fact.what == What::Publication(publication);
        // The newest is the likeliest.
        self.at(sequence).is_some_and(|fact| is_it(&fact))
            || self.lives.iter().any(|life| life.iter().any(is_it))
    }

    /// Publications of a channel behind a place.
    pub(super) fn publications(&self, channel: usize, after: u64) -> Vec<u64> {
        let of_channel = self.of_channel(channel);
        let publications = of_channel.filter_map(|fact| match fact.what {
            What::Publication(publication) if fact.sequence > after => Some(publication),
            _ => None,
        });
        publications.collect()
    }

    /// Publications of a channel that no removal has passed, up to a place.
    pub(super) fn kept(&self, channel: usize, to: u64) -> Vec<u64> {
        let mut kept = Vec::new();
        for fact in self.of_channel(channel).filter(|fact| fact.sequence <= to) {
            match fact.what {
                What::Publication(publication) => kept.push(publication),
                What::Removal => kept.clear(),
                What::Other => {}
            }
        }
        kept
    }

    fn of_channel(&self, channel: usize) -> impl Iterator<Item = &Fact> {
        let facts = self.newest().iter();
        facts.filter(move |fact| fact.channel == Some(channel))
    }

    /// Asserts that no life has a publication twice.
    pub(super) fn check_once(&self) {
        for life in &self.lives {
            let mut publications: Vec<_> = life
                .iter()
                .filter_map(|fact| match fact.what {
                    What::Publication(publication) => Some(publication),
                    What::Removal | What::Other => None,
                })
                .collect();
            publications.sort_unstable();
            let twice = publications.windows(2).find(|pair| pair[0] == pair[1]);
            assert_eq!(twice, None, "a publication is stored twice");
        }
    }
}
