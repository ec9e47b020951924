//! Defects: what is about one connection or one channel ends that, is counted, and gets a line in the log. Changes `hub`, `home` and
//! `turn_end`.

use crate::shard::Shard;
use crate::thinned::Thinned;
use myriad_hub::{CloseReason, Defect, DefectScope, Now, Phase, Plant};
use myriad_reactor::Reactor;
use std::fmt::Write as _;

/// Rounds in which the end of something defective may meet other defects. What is left then waits for the next turn.
const ROUNDS_MAX: usize = 4;

/// A defect, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedDefect {
    /// What it is about, one of [`DefectScope::LABELS`].
    pub scope: &'static str,
    /// The statement that does not hold.
    pub statement: &'static str,
    /// Where it stands: a file, and a line.
    pub at: (&'static str, u32),
    /// What was going on.
    pub circumstances: String,
}

/// Lines about defects that wait for the control plane.
const LINES_MAX: usize = 100;

/// Defects of one shard that the control plane has not taken yet: one a second for each statement.
#[derive(Debug, Default)]
pub struct DefectLines {
    /// In the order they happened.
    pub kept: Vec<NotedDefect>,
    /// How many more there were, by file and line.
    pub left_out: Vec<((&'static str, u32), u64)>,
    /// How many more there were of further statements.
    pub beyond: u64,
}

/// A shard's [`DefectLines`].
#[derive(Debug, Default)]
pub(crate) struct DefectLog {
    kept: Vec<NotedDefect>,
    reasons: Thinned<(&'static str, u32)>,
}

impl DefectLog {
    pub(crate) fn note(&mut self, defect: NotedDefect, now: Now) {
        if self.reasons.note(defect.at, now) && self.kept.len() < LINES_MAX {
            self.kept.push(defect);
        }
    }

    pub(crate) fn take(&mut self, now: Now) -> DefectLines {
        let (left_out, beyond) = self.reasons.take_left_out(now);
        DefectLines {
            kept: std::mem::take(&mut self.kept),
            left_out,
            beyond,
        }
    }
}

/// The steps of a turn, for the line about a defect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    #[default]
    Completions,
    Messages,
    Orders,
    Timers,
    Deliveries,
    Flush,
    End,
}

impl<R: Reactor> Shard<R> {
    /// Ends what defects were noted about in this turn.
    pub(crate) fn end_defective(&mut self, now: Now) {
        for _ in 0..ROUNDS_MAX {
            if !self.hub.has_defects() && !self.home.has_defects() {
                break;
            }
            let (mut defects, mut more) = self.hub.take_defects();
            let (of_home, more_of_home) = self.home.take_defects();
            defects.extend(of_home);
            more += more_of_home;
            self.metrics().defects_left_out.add(more);
            for defect in defects {
                self.end_one(defect, now);
            }
            self.hub.forget_broken_queues();
        }
    }

    /// Counts a defect, notes it for the log, and ends what it is about.
    #[cold]
    fn end_one(&mut self, defect: Defect, now: Now) {
        self.metrics().defects[defect.scope.index()].add(1);
        let noted = NotedDefect {
            scope: DefectScope::LABELS[defect.scope.index()],
            statement: defect.statement,
            at: (defect.at.file(), defect.at.line()),
            circumstances: self.circumstances(&defect.scope),
        };
        self.mesh.note_defect(self.index, noted, now);
        match defect.scope {
            DefectScope::Connection(index) => self.end_defective_connection(index, now),
            DefectScope::Channel(channel) => {
                let emptied = &mut self.turn_end.emptied_channels;
                for delivery in self.hub.end_channel(&channel, emptied) {
                    self.note_submitted(&delivery);
                }
            }
            DefectScope::Home(channel) => {
                self.home.end_channel(&channel, now);
                self.run_home_effects(now);
            }
            DefectScope::Message => {}
        }
    }

    /// Whether its bytes are in order is not known, but for a client that only waits for frames: it is told why, and comes back.
    fn end_defective_connection(&mut self, index: u32, now: Now) {
        let Some(key) = self.hub.key_of(index) else {
            return;
        };
        let connection = self.hub.connection(index);
        let may_be_told = connection.phase == Phase::Open
            && !connection.transport().reads_streams()
            && !self.hub.has_broken_queue(index);
        if may_be_told {
            self.close_stream(key, CloseReason::Defect, now);
        } else {
            self.reset(key, CloseReason::Defect, now);
        }
    }

    /// What was going on with a connection or a channel: what its records say.
    fn circumstances(&self, scope: &DefectScope) -> String {
        let mut text = format!("in {:?} of a turn", self.step);
        // Writing to a String cannot fail.
        let _ = match scope {
            DefectScope::Connection(index) => match self.hub.key_of(*index) {
                None => write!(text, ", record {index}, which is vacant"),
                Some(key) => {
                    let connection = self.hub.connection(*index);
                    write!(
                        text,
                        ", connection {}:{}:{}, {}, {:?}, with {} channels, {} joins pending, {}",
                        self.index,
                        key.index,
                        key.generation,
                        connection.transport().name(),
                        connection.phase,
                        self.hub.channel_count_of(*index),
                        connection.joins_pending(),
                        match connection.has_session() {
                            true => "a session",
                            false => "no session",
                        },
                    )
                }
            },
            DefectScope::Channel(channel) => {
                write!(
                    text,
                    ", channel {channel:?}, {}",
                    self.hub.describe_channel(channel)
                )
            }
            DefectScope::Home(channel) => {
                write!(
                    text,
                    ", channel {channel:?}, {}",
                    self.home.describe_channel(channel)
                )
            }
            DefectScope::Message => Ok(()),
        };
        text
    }

    /// A defect about a connection that the shard itself has found.
    #[cold]
    #[track_caller]
    pub(crate) fn note_defect_of(&self, index: u32, statement: &'static str) {
        self.hub
            .note_defect(DefectScope::Connection(index), statement);
    }

    /// A defect about a message that the shard itself has found.
    #[cold]
    #[track_caller]
    pub(crate) fn note_defect_of_message(&self, statement: &'static str) {
        self.hub.note_defect(DefectScope::Message, statement);
    }

    /// Defects are noted with debug assertions, too, instead of panicking: for tests of what becomes of them.
    pub fn survive_defects(&mut self) {
        self.hub.survive_defects();
        self.home.survive_defects();
    }

    /// Makes a statement wrong, so that tests see what becomes of it. Does nothing in what ships.
    pub fn plant(&mut self, plant: &Plant) {
        self.hub.plant(plant);
        self.home.plant(plant);
    }
}
