//! Making changes, each behind its line in the journal.

use super::Root;
use super::journal::{Intent, Journal, JournalError, Record, folder_of, sync_folder};
use super::steps::{Step, Target};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What became of a step.
#[derive(Debug)]
pub enum Applied {
    /// It is in force.
    Made,
    /// The kernel made something else of it.
    Became(String),
    /// It was not allowed, or not possible.
    Refused(io::Error),
    /// Somebody else has changed it to this since it was listed; it is left alone.
    ChangedMeanwhile(Option<String>),
    /// It would do harm without this one, which was not made.
    LeftOut(Target),
}

/// Makes the changes one after the other, and tells `each` what became of it. One that is refused does not keep the
/// others from being made.
///
/// # Errors
/// The journal cannot be written: what was made so far is in it, nothing further is changed.
pub fn apply(
    root: &Root,
    steps: &[Step],
    journal: &mut Journal,
    mut each: impl FnMut(&Step, Applied),
) -> Result<(), JournalError> {
    let mut made: Vec<&Target> = Vec::new();
    for step in steps {
        let missing = step.needs.iter().find(|needed| !made.contains(needed));
        let applied = match missing {
            Some(missing) => Applied::LeftOut(missing.clone()),
            None => apply_one(root, step, journal)?,
        };
        if matches!(applied, Applied::Made) {
            made.push(&step.target);
        }
        each(step, applied);
    }
    Ok(())
}

fn apply_one(root: &Root, step: &Step, journal: &mut Journal) -> Result<Applied, JournalError> {
    // It was listed before a person was asked, who may have taken a while to answer.
    match step.target.read(root) {
        Ok(now) if step.target.same(now.as_deref(), step.before.as_deref()) => {}
        Ok(now) => return Ok(Applied::ChangedMeanwhile(now)),
        Err(error) => return Ok(Applied::Refused(error)),
    }
    let number = journal.next_number();
    let new_folder = missing_folder(root, &step.target);
    journal.write(Record::Intent(Intent {
        number,
        target: step.target.clone(),
        before: step.before.clone(),
        after: step.after.clone(),
        new_folder: new_folder.clone(),
        world: root.world(),
    }))?;
    let written = write(root, &step.target, &step.after);
    let became = step.target.read(root).ok().flatten();
    journal.write(Record::Done {
        number,
        became: became.clone(),
    })?;
    let is = |value: Option<&str>| step.target.same(became.as_deref(), value);
    match written {
        Ok(()) if is(Some(&step.after)) => Ok(Applied::Made),
        Ok(()) => Ok(Applied::Became(became.unwrap_or_default())),
        Err(error) => {
            if is(step.before.as_deref()) && leaves_nothing(root, step, new_folder.as_deref()) {
                journal.write(Record::Undone { number })?;
            }
            Ok(Applied::Refused(error))
        }
    }
}

/// Tidies up after a write that was refused; true if nothing of it is left to undo.
fn leaves_nothing(root: &Root, step: &Step, new_folder: Option<&Path>) -> bool {
    match (&step.target, &step.before) {
        (Target::Sysctl(_), _) => true,
        (Target::File(path), None) => remove(root, path, new_folder).is_ok(),
        (Target::File(path), Some(_)) => sweep(root, path).is_ok(),
    }
}

/// The folder that has to be made for a file, when it is only the last one: drop-ins of a unit.
fn missing_folder(root: &Root, target: &Target) -> Option<PathBuf> {
    match target {
        Target::File(path) => {
            let folder = folder_of(path);
            (!root.place(folder).exists()).then(|| folder.to_path_buf())
        }
        Target::Sysctl(_) => None,
    }
}

/// Writes a value where it belongs.
pub(super) fn write(root: &Root, target: &Target, value: &str) -> io::Result<()> {
    let path = target.path(root);
    match target {
        // A line end is needed: an empty value would be no write at all.
        Target::Sysctl(_) => OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)?
            .write_all(format!("{value}\n").as_bytes()),
        Target::File(_) => replace(&path, value),
    }
}

/// A file is either the old one or the new one, whenever the machine stops.
fn replace(path: &Path, contents: &str) -> io::Result<()> {
    let folder = folder_of(path);
    std::fs::create_dir_all(folder)?;
    let new = beside(path);
    let mut file = File::create(&new)?;
    file.write_all(contents.as_bytes())?;
    if let Ok(existing) = std::fs::metadata(path) {
        file.set_permissions(existing.permissions())?;
    }
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    sync_folder(folder)
}

/// Where a file is written before it takes its name. No program reads configuration from files with such an ending.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".myriad-new");
    folder_of(path).join(name)
}

/// Takes away what a process that was killed while it wrote a file left beside it.
pub(super) fn sweep(root: &Root, path: &Path) -> io::Result<()> {
    match std::fs::remove_file(beside(&root.place(path))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Takes a file away that was not there before, and the folder that was made for it.
pub(super) fn remove(root: &Root, path: &Path, new_folder: Option<&Path>) -> io::Result<()> {
    sweep(root, path)?;
    match std::fs::remove_file(root.place(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Some(folder) = new_folder {
        // Somebody else may have put a file there meanwhile; then it stays.
        let _ = std::fs::remove_dir(root.place(folder));
    }
    Ok(())
}
