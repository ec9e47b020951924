//! Taking changes back: every value as it was, the latest change first.

use super::journal::{Journal, JournalError, Pending, Record};
use super::steps::{SYSCTL_FILE, Target};
use super::{Root, World, apply};
use std::io;

/// One change to take back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// What was changed.
    pub target: Target,
    /// What is there now.
    pub now: Option<String>,
    /// What was there before.
    pub before: Option<String>,
    /// What has to be done about it.
    pub undone: Undone,
}

/// What taking a change back comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The value before is written.
    Restore,
    /// It is as it was before.
    AsItWas,
    /// The setting ended with a reboot.
    Rebooted,
    /// It was changed in another network namespace, where it has to be taken back.
    Elsewhere,
    /// Somebody else has changed it since; it is left alone.
    ChangedSince,
    /// What is there cannot be read.
    Unreadable(String),
}

/// What a journal says is to be taken back.
#[derive(Debug)]
pub struct Undo {
    journal: Journal,
    root: Root,
    entries: Vec<(Pending, Restored)>,
}

impl Undo {
    /// Reads what is pending, and what is there now. Nothing is changed yet.
    #[must_use]
    pub fn new(root: Root, journal: Journal) -> Self {
        let world = root.world();
        let lasting = lasting(&journal);
        // Of several changes of one setting, an earlier one meets what the later one leaves behind.
        let mut left_behind: Vec<(Target, Option<String>)> = Vec::new();
        let mut entries = Vec::new();
        for pending in journal.pending() {
            let target = pending.intent.target.clone();
            let known = left_behind.iter().find(|(known, _)| *known == target);
            let now = match known {
                Some((_, value)) => Ok(value.clone()),
                None => target.read(&root),
            };
            let (now, undone) = match now {
                Ok(now) => {
                    let undone = judge(&pending, now.as_deref(), &world, lasting);
                    (now, undone)
                }
                Err(error) => (None, Undone::Unreadable(error.to_string())),
            };
            let before = pending.intent.before.clone();
            left_behind.retain(|(known, _)| *known != target);
            left_behind.push((
                target.clone(),
                if undone == Undone::Restore {
                    before.clone()
                } else {
                    now.clone()
                },
            ));
            entries.push((
                pending,
                Restored {
                    target,
                    now,
                    before,
                    undone,
                },
            ));
        }
        Self {
            journal,
            root,
            entries,
        }
    }

    /// What there is to take back, in the order in which it is done.
    pub fn entries(&self) -> impl Iterator<Item = &Restored> {
        self.entries.iter().map(|(_, restored)| restored)
    }

    /// Takes it back, and tells `each` how that went. Returns whether all of it is as it was; then the journal goes too.
    ///
    /// # Errors
    /// The journal cannot be written. Another run goes on from there.
    pub fn run(
        mut self,
        mut each: impl FnMut(&Restored, io::Result<()>),
    ) -> Result<bool, JournalError> {
        let mut whole = true;
        for (pending, restored) in &self.entries {
            let done = match restored.undone {
                Undone::Restore => restore(&self.root, pending),
                Undone::AsItWas => tidy(&self.root, pending),
                Undone::Rebooted => Ok(()),
                Undone::Elsewhere | Undone::ChangedSince | Undone::Unreadable(_) => {
                    whole = false;
                    each(restored, Ok(()));
                    continue;
                }
            };
            match done {
                Ok(()) => self.journal.write(Record::Undone {
                    number: pending.intent.number,
                })?,
                Err(_) => whole = false,
            }
            each(restored, done);
        }
        self.journal.remove_if_settled()?;
        Ok(whole)
    }
}

/// Whether a file was written too that makes settings again at every boot.
fn lasting(journal: &Journal) -> bool {
    let file = Target::File(SYSCTL_FILE.into());
    let pending = journal.pending();
    pending.iter().any(|one| one.intent.target == file)
}

/// What has to be done about a change, given what is there now.
fn judge(pending: &Pending, now: Option<&str>, world: &World, lasting: bool) -> Undone {
    let intent = &pending.intent;
    if let Target::Sysctl(key) = &intent.target {
        if intent.world.boot != world.boot {
            // The file has set the value again, in a network namespace whose name says nothing after a boot.
            return if lasting && intent.target.same(now, Some(&intent.after)) {
                Undone::Restore
            } else {
                Undone::Rebooted
            };
        }
        if key.starts_with("net.") && intent.world.network != world.network {
            return Undone::Elsewhere;
        }
    }
    if intent.target.same(now, intent.before.as_deref()) {
        return Undone::AsItWas;
    }
    match &pending.became {
        // The process ended in the midst of it: whatever is there is what became of it.
        None => Undone::Restore,
        Some(became) if intent.target.same(now, became.as_deref()) => Undone::Restore,
        Some(_) => Undone::ChangedSince,
    }
}

/// Of a file that was not written in the end, its folder and what was to become of it may be there.
fn tidy(root: &Root, pending: &Pending) -> io::Result<()> {
    let intent = &pending.intent;
    match (&intent.target, &intent.before) {
        (Target::File(path), None) => apply::remove(root, path, intent.new_folder.as_deref()),
        (Target::File(path), Some(_)) => apply::sweep(root, path),
        (Target::Sysctl(_), _) => Ok(()),
    }
}

fn restore(root: &Root, pending: &Pending) -> io::Result<()> {
    let intent = &pending.intent;
    match (&intent.target, &intent.before) {
        (target, Some(before)) => apply::write(root, target, before),
        (Target::File(path), None) => apply::remove(root, path, intent.new_folder.as_deref()),
        (Target::Sysctl(_), None) => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the setting did not exist before",
        )),
    }
}
