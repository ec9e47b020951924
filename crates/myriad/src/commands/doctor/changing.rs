//! `--fix` and `--undo`: what is shown, what is asked, what came of it.

use super::{Arguments, failed, verdict};
use myriad_doctor::fix::{
    Applied, Journal, JournalError, Made, Persistence, Plan, Restored, Root, Step, Target, Undo,
    Undone, apply,
};
use myriad_doctor::{Change, Examination};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Lists the changes, asks, makes them, and judges the machine again.
pub(super) fn fix(arguments: &Arguments, examination: Examination) -> ExitCode {
    tell(format_args!("{}", examination.headline));
    let persistence = if arguments.persistent {
        Persistence::Persistent
    } else {
        Persistence::UntilReboot
    };
    let root = Root::new("/");
    let unit = arguments.unit.as_deref();
    let made = match made_before(arguments, &root) {
        Ok(made) => made,
        Err(error) => return failed(&error.to_string()),
    };
    let plan = match Plan::new(&root, &examination.changes, persistence, unit, &made) {
        Ok(plan) => plan,
        Err(error) => return failed(&format!("a setting to change cannot be read: {error}")),
    };
    if plan.steps.is_empty() && plan.by_hand.is_empty() {
        tell("There is no setting to change.");
        return verdict(examination.enough);
    }
    tell(format_args!(
        "\nTo change:\n{}",
        plan.listed(super::width())
    ));
    if plan.steps.is_empty() {
        return verdict(examination.enough);
    }
    if !(arguments.yes || confirmed(&format!("Change {} of them now?", plan.steps.len()))) {
        tell("Nothing was changed.");
        return verdict(examination.enough);
    }
    let given: &[Change] = match change(&root, &plan.steps, &arguments.journal) {
        Ok(FilesMade(true)) => &plan.given,
        Ok(FilesMade(false)) => &[],
        Err(error) => return failed(&error),
    };
    match arguments.examine_again(&examination, given) {
        Ok(now) => {
            if !given.is_empty() {
                tell("\nFor a program that is started anew:");
            }
            tell(format_args!("\n{}", now.headline));
            verdict(now.enough)
        }
        Err(error) => failed(&format!("the machine cannot be judged any more: {error}")),
    }
}

/// What earlier runs made until the next reboot, if it is to last now.
fn made_before(arguments: &Arguments, root: &Root) -> Result<Vec<Made>, JournalError> {
    if !arguments.persistent {
        return Ok(Vec::new());
    }
    let journal = Journal::open_existing(&arguments.journal)?;
    Ok(journal.map_or_else(Vec::new, |journal| journal.made(root)))
}

/// Whether every file was written, so that programs started from now on are given what it says.
struct FilesMade(bool);

fn change(root: &Root, steps: &[Step], journal: &Path) -> Result<FilesMade, String> {
    let mut journal = Journal::open(journal).map_err(|error| error.to_string())?;
    let place = journal.path().display().to_string();
    let (mut made, mut refused, mut files_made) = (0, 0, true);
    let applied = apply(root, steps, &mut journal, |step, applied| {
        match applied {
            Applied::Made | Applied::Became(_) => made += 1,
            _ => {
                refused += 1;
                files_made &= matches!(step.target, Target::Sysctl(_));
            }
        }
        tell(format_args!("  {}", outcome(step, &applied)));
    });
    applied.map_err(|error| error.to_string())?;
    if refused > 0 {
        tell(format_args!(
            "{refused} could not be changed: run as root of the machine, or have them changed with --print."
        ));
    }
    if made > 0 {
        tell(format_args!(
            "What it was is in {place}; myriad doctor --undo takes it back."
        ));
    } else {
        journal
            .remove_if_settled()
            .map_err(|error| error.to_string())?;
    }
    Ok(FilesMade(files_made))
}

fn outcome(step: &Step, applied: &Applied) -> String {
    let target = &step.target;
    match applied {
        Applied::Made => format!("changed {target}"),
        Applied::Became(value) => format!("changed {target}; the kernel made it {value}"),
        Applied::Refused(error) => format!("not changed {target}: {error}"),
        Applied::ChangedMeanwhile(now) => format!(
            "not changed {target}: somebody else has made it {} since it was listed",
            shown(now.as_deref())
        ),
        Applied::LeftOut(missing) => {
            format!("left out {target}, which does harm without {missing}")
        }
    }
}

/// What a setting is, in a word.
fn shown(value: Option<&str>) -> String {
    match value {
        None => "(nothing)".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) if text.contains('\n') => format!("{} lines", text.lines().count()),
        Some(text) => text.replace('\t', " "),
    }
}

/// Says something on stdout. That nobody reads it any more does not stop what is under way: half of the changes would
/// be made.
fn tell(words: impl Display) {
    let _ = writeln!(io::stdout(), "{words}");
}

/// Lists what was changed, asks, and takes it back.
pub(super) fn undo(journal: &Path, yes: bool) -> ExitCode {
    let place = journal.display().to_string();
    let journal = match Journal::open_existing(journal) {
        Ok(Some(journal)) => journal,
        Ok(None) => {
            tell(format_args!(
                "There is nothing to take back: no journal at {place}."
            ));
            return ExitCode::SUCCESS;
        }
        Err(error) => return failed(&error.to_string()),
    };
    let undo = Undo::new(Root::new("/"), journal);
    tell("To take back:");
    let mut restores = 0;
    for entry in undo.entries() {
        tell(format_args!("  {}", described(entry)));
        restores += usize::from(entry.undone == Undone::Restore);
    }
    if restores > 0 && !(yes || confirmed(&format!("Restore {restores} of them now?"))) {
        tell("Nothing was changed.");
        return verdict(false);
    }
    let mut reload = false;
    let done = undo.run(|entry, done| match done {
        Err(error) => tell(format_args!("  not restored {}: {error}", entry.target)),
        Ok(()) if entry.undone == Undone::Restore => {
            reload |= entry.target.is_of_systemd();
            tell(format_args!("  restored {}", entry.target));
        }
        Ok(()) => {}
    });
    if reload {
        tell("by hand: systemctl daemon-reload, and restart the unit.");
    }
    match done {
        Ok(true) => {
            tell("Everything is as it was.");
            ExitCode::SUCCESS
        }
        Ok(false) => failed(&format!(
            "some of it is not as it was; {place} still says what that would be"
        )),
        Err(error) => failed(&error.to_string()),
    }
}

fn described(entry: &Restored) -> String {
    let target = &entry.target;
    let (now, before) = (shown(entry.now.as_deref()), shown(entry.before.as_deref()));
    match &entry.undone {
        Undone::Restore => format!("{target}: {now}  →  {before}"),
        Undone::AsItWas => format!("{target}: is {before}, as it was"),
        Undone::Rebooted => format!("{target}: ended with the reboot since"),
        Undone::Elsewhere => format!(
            "{target}: was changed in another network namespace; run --undo there to make it {before}"
        ),
        Undone::ChangedSince => {
            format!("{target}: is {now}, which somebody else made it; it was {before} before")
        }
        Undone::Unreadable(why) => format!("{target}: cannot be read ({why}); it was {before}"),
    }
}

/// Whether a person said yes. Nobody there is no.
fn confirmed(question: &str) -> bool {
    let mut answer = String::new();
    let asked = write!(io::stdout(), "{question} [y/N] ").and_then(|()| io::stdout().flush());
    asked.is_ok()
        && io::stdin().read_line(&mut answer).is_ok()
        && matches!(answer.trim(), "y" | "Y" | "yes")
}
