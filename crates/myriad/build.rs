//! Gives the program the commit that it is built from, as BUILD_COMMIT.
//!
//! No other crate has such a script: a new commit compiles this crate alone again.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the commit where there is no git: in a container, and in an archive of the sources. It does not begin with MYRIAD_, because Cargo
/// sets it for the programs that it runs, and a server warns of such a variable that is no option.
const VARIABLE: &str = "BUILD_COMMIT";

/// Digits that are shown. Linux needs 12 for its millions of objects.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let commit = of_environment().or_else(of_git);
    let commit = commit.as_deref().map_or("unknown", shortened);
    println!("cargo::rustc-env={VARIABLE}={commit}");
}

fn of_environment() -> Option<String> {
    let text = std::env::var(VARIABLE).ok()?;
    let text = text.trim();
    // A container's build argument that nobody gave is an empty variable.
    (!text.is_empty()).then(|| text.to_owned())
}

/// The commit that is checked out. Changes that are not committed do not show: Cargo would have to run this after each of them.
fn of_git() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // An archive of the sources may be unpacked inside another project's repository.
    let is_ours = git(&root, &["rev-parse", "--show-prefix"])?.is_empty();
    let commit = is_ours.then(|| git(&root, &["rev-parse", "HEAD"]))??;
    watch(&root);
    Some(commit)
}

/// Tells Cargo what changes with the commit. A file that is not there would make it run this script at every build.
fn watch(root: &Path) {
    // The log of HEAD has a line for each commit and checkout. Without it a branch's name tells, as one file or in a packed one.
    let names = ["HEAD", "logs/HEAD", "refs/heads", "packed-refs"];
    let paths: Vec<PathBuf> = names
        .iter()
        .filter_map(|name| git(root, &["rev-parse", "--git-path", name]))
        .map(|path| root.join(path))
        .collect();
    let has_log = paths.get(1).is_some_and(|path| path.exists());
    let watched = if has_log { &paths[..2] } else { &paths[..] };
    for path in watched.iter().filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    let output = command.current_dir(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// A whole hash is more than a person reads. Another word, such as a packager's, stays as it is.
fn shortened(commit: &str) -> &str {
    let is_hash = commit.len() > DIGITS && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { &commit[..DIGITS] } else { commit }
}
