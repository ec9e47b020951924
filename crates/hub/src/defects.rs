//! Defects: statements about our own records that do not hold.
//!
//! A wrong statement about one connection, or about one channel, must not end the connections of everybody. So it is noted here,
//! the caller goes on with something harmless, and the shard ends that connection or that channel at the end of its turn
//! ([ADR 29](../../../docs/adr/0029-a-defect-ends-what-it-is-about.md)). With debug assertions it panics, so that it fails every
//! test.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;

/// Defects that wait for the end of the turn. The next turn meets again what did not fit.
const NOTED_MAX: usize = 64;

/// What a defect is about, and so what ends with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefectScope {
    /// The connection with this record. Its client is told to come back.
    Connection(u32),
    /// The channel of this name on one shard. Its members there are told to subscribe anew.
    Channel(Arc<str>),
    /// What the home of the channel of this name knows of it. All members are told to subscribe anew, and a channel that its home
    /// orders begins again with another epoch.
    Home(Arc<str>),
    /// A message. It is dropped, and nobody ends.
    Message,
}

impl DefectScope {
    /// The values of the metric's label, by [`DefectScope::index`].
    pub const LABELS: [&'static str; 4] = ["connection", "channel", "home", "message"];

    /// Its place in [`DefectScope::LABELS`].
    #[must_use]
    pub fn index(&self) -> usize {
        match self {
            Self::Connection(_) => 0,
            Self::Channel(_) => 1,
            Self::Home(_) => 2,
            Self::Message => 3,
        }
    }
}

/// A statement that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What it is about.
    pub scope: DefectScope,
    /// The statement.
    pub statement: &'static str,
    /// Where it stands.
    pub at: &'static Location<'static>,
}

/// What tests make wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The connection with this record has a defect.
    Connection(u32),
    /// The shard knows a later publication of this channel than there is.
    Channel(Box<str>),
    /// The home of this channel gives out an offset for the second time.
    Home(Box<str>),
}

/// The defects of a turn. The methods take `&self`: many statements stand where nothing else is changed.
#[derive(Debug, Default)]
pub(crate) struct Defects {
    noted: RefCell<Vec<Defect>>,
    /// Those that are not in the list: about something that has one there, or too many.
    more: Cell<u64>,
    /// With debug assertions too, a defect is noted.
    survives: bool,
}

impl Defects {
    /// A statement does not hold.
    ///
    /// # Panics
    /// With debug assertions, but for [`Defects::survive`].
    #[cold]
    #[track_caller]
    pub(crate) fn note(&self, scope: DefectScope, statement: &'static str) {
        assert!(
            self.survives || !cfg!(debug_assertions),
            "{statement}: {scope:?}"
        );
        let mut noted = self.noted.borrow_mut();
        let is_known = noted.iter().any(|defect| defect.scope == scope);
        if is_known || noted.len() >= NOTED_MAX {
            self.more.set(self.more.get() + 1);
            return;
        }
        noted.push(Defect {
            scope,
            statement,
            at: Location::caller(),
        });
    }

    /// From now on a defect is noted with debug assertions, too.
    pub(crate) fn survive(&mut self) {
        self.survives = true;
    }

    /// Whether any were noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.noted.borrow().is_empty()
    }

    /// Takes those that were noted, and how many more there were.
    pub(crate) fn take(&self) -> (Vec<Defect>, u64) {
        (self.noted.take(), self.more.take())
    }
}

#[cfg(test)]
mod tests {
    use super::{DefectScope, Defects, NOTED_MAX};

    #[test]
    fn each_scope_has_one_entry_and_all_are_counted() {
        let mut defects = Defects::default();
        defects.survive();
        for _ in 0..3 {
            defects.note(DefectScope::Connection(7), "one thing");
        }
        defects.note(DefectScope::Message, "another");
        assert!(!defects.is_empty());
        let (noted, more) = defects.take();
        let statements: Vec<_> = noted.iter().map(|defect| defect.statement).collect();
        assert_eq!((statements, more), (vec!["one thing", "another"], 2));
        assert!(noted[0].at.file().ends_with("defects.rs"));
        assert!(defects.is_empty());
        for index in 0..100 {
            defects.note(DefectScope::Connection(index), "many");
        }
        let (noted, more) = defects.take();
        assert_eq!(noted.len(), NOTED_MAX);
        assert_eq!(noted.len() as u64 + more, 100);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "it fails every test")]
    fn a_defect_fails_every_test() {
        Defects::default().note(DefectScope::Message, "it fails every test");
    }
}
