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
        if let Some(missing) = step.needs.iter().find(|needed| !made.contains(needed)) {
            each(step, Applied::LeftOut(missing.clone()));
            continue;
        }
        let number = journal.next_number();
        journal.write(Record::Intent(Intent {
            number,
            target: step.target.clone(),
            before: step.before.clone(),
            after: step.after.clone(),
            new_folder: missing_folder(root, &step.target),
            world: root.world(),
        }))?;
        let written = write(root, &step.target, &step.after);
        let became = step.target.read(root).ok().flatten();
        journal.write(Record::Done {
            number,
            became: became.clone(),
        })?;
        let applied = match (written, became) {
            (Err(error), _) => Applied::Refused(error),
            (Ok(()), became) if step.target.same(became.as_deref(), Some(&step.after)) => {
                made.push(&step.target);
                Applied::Made
            }
            (Ok(()), became) => Applied::Became(became.unwrap_or_default()),
        };
        each(step, applied);
    }
    Ok(())
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
