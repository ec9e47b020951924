//! `myriad config import`: a configuration of Centrifugo as one of ours.

use crate::{BAD_ARGUMENTS, say};
use anyhow::{Context as _, bail};
use clap::{ArgGroup, Args, ValueEnum};
use myriad_import::{
    FILE_BYTES_MAX, Fate, ImportError, Imported, Layout, Report, Source, Variables, import,
    read_env_file,
};
use myriad_server::{Machine, check_text};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the configuration comes from, and where it goes.
#[derive(Args, Clone, Debug)]
#[command(
    group(ArgGroup::new("source").args(["file", "env", "env_file"]).required(true).multiple(true)),
    after_help = "Exit codes: 0 the file was made, 104 it was not."
)]
pub(crate) struct Arguments {
    /// The config file of Centrifugo 5 or 6: JSON, YAML or TOML
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Also reads variables of the environment that begin with CENTRIFUGO_, over the file
    #[arg(long)]
    env: bool,

    /// Also reads such variables from a file with NAME=VALUE lines
    #[arg(long, value_name = "FILE", conflicts_with = "env")]
    env_file: Option<PathBuf>,

    /// The version that it was written for [default: what its names show]
    #[arg(long, value_name = "VERSION")]
    from: Option<Version>,

    /// Writes to this file, which only you may read, instead of stdout
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Writes what became of each option to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Replaces files that are there
    #[arg(long)]
    force: bool,
}

/// A version of Centrifugo.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Version {
    /// Flat names, such as token_hmac_secret_key
    V5,
    /// Nested tables, such as client.token.hmac_secret_key
    V6,
}

/// Imports.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match done(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let several = error.downcast_ref::<ImportError>();
            match several {
                Some(ImportError::Values(faults)) => {
                    for fault in faults {
                        say(format_args!("error: {fault}"));
                    }
                }
                _ => say(format_args!("error: {error:#}")),
            }
            ExitCode::from(BAD_ARGUMENTS)
        }
    }
}

fn done(arguments: &Arguments) -> anyhow::Result<()> {
    let text = match &arguments.file {
        Some(path) => Some(read(path)?),
        None => None,
    };
    let variables = variables(arguments)?;
    let source = Source {
        file: arguments.file.as_deref().zip(text.as_deref()),
        variables: variables.as_ref(),
        layout: arguments.from.map(|version| match version {
            Version::V5 => Layout::V5,
            Version::V6 => Layout::V6,
        }),
    };
    // Opening a pipe would wait for whoever writes into it.
    let is_file = |path: &str| std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let is_readable = |path: &str| is_file(path) && File::open(path).is_ok();
    let imported = match (import(source, &is_readable), &arguments.file) {
        (Err(error @ ImportError::File(_)), Some(path)) => {
            return Err(error).with_context(|| path.display().to_string());
        }
        (result, _) => result?,
    };
    let warnings = checked(&imported, arguments.output.as_deref())?;
    write(arguments, &imported)?;
    let _ = write!(std::io::stderr(), "{}", imported.report.text());
    for warning in warnings {
        say(format_args!("warning: {warning}"));
    }
    Ok(())
}

/// Reads no more of a file than a configuration has.
fn read(path: &Path) -> anyhow::Result<String> {
    let name = || path.display().to_string();
    let file = File::open(path).with_context(name)?;
    let most = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .with_context(name)?;
    if bytes.len() > FILE_BYTES_MAX {
        bail!(
            "{}: it has more than 4 MiB: this is no configuration of Centrifugo",
            name()
        );
    }
    String::from_utf8(bytes)
        .ok()
        .with_context(|| format!("{}: it is no text in UTF-8", name()))
}

fn variables(arguments: &Arguments) -> anyhow::Result<Option<Variables>> {
    if let Some(path) = &arguments.env_file {
        let text = read(path)?;
        let variables = read_env_file(&text).with_context(|| path.display().to_string())?;
        return Ok(Some(variables));
    }
    let of_process = || {
        let all = std::env::vars_os();
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    };
    Ok(arguments.env.then(of_process))
}

/// Holds what was made against the check of `myriad config check`. What it refuses is not written.
fn checked(imported: &Imported, output: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let name = output.unwrap_or(Path::new("imported.toml"));
    match check_text(&imported.text, name, &Machine::here()) {
        Ok(config) => Ok(config.remarks),
        Err(error) => {
            let mut mistakes = Vec::new();
            for mistake in error.each() {
                let mistake = mistake.to_string();
                let from = origin(&imported.report, &mistake);
                mistakes.push(format!("{from}{mistake}"));
            }
            bail!(
                "myriad would not start with it, so nothing is written:\n{}",
                mistakes.join("\n")
            );
        }
    }
}

/// The option of Centrifugo's that a mistake in our file comes from.
fn origin(report: &Report, mistake: &str) -> String {
    let written = report.with(&[Fate::Taken, Fate::Changed]);
    let mut named = written.filter(|note| {
        let ours = note.ours.as_deref().unwrap_or_default();
        !ours.is_empty() && mistake.contains(&format!(" {ours} = "))
    });
    match named.next() {
        Some(note) => format!("{}: ", note.name),
        None => String::new(),
    }
}

fn write(arguments: &Arguments, imported: &Imported) -> anyhow::Result<()> {
    let files = [&arguments.output, &arguments.report];
    for path in files.into_iter().flatten() {
        refuse_source(arguments, path)?;
        if !arguments.force && path.symlink_metadata().is_ok() {
            bail!(
                "{}: it is there already; write --force to replace it",
                path.display()
            );
        }
    }
    if let Some(path) = &arguments.report {
        let json = serde_json::to_string_pretty(&imported.report.json())?;
        replace(path, &format!("{json}\n"), arguments.force)?;
    }
    match &arguments.output {
        Some(path) => replace(path, &imported.text, arguments.force),
        None => {
            // Whoever closes the pipe has read enough.
            let _ = std::io::stdout().write_all(imported.text.as_bytes());
            Ok(())
        }
    }
}

/// With `--force` the file that is read would be gone.
fn refuse_source(arguments: &Arguments, path: &Path) -> anyhow::Result<()> {
    let sources = [&arguments.file, &arguments.env_file];
    for source in sources.into_iter().flatten() {
        let is_same = match (source.canonicalize(), path.canonicalize()) {
            (Ok(source), Ok(path)) => source == path,
            _ => false,
        };
        if is_same {
            bail!(
                "{}: it is what is read; choose another name",
                path.display()
            );
        }
    }
    Ok(())
}

/// Writes a file that only its owner may read. One that is there is replaced whole, with its rights.
fn replace(path: &Path, text: &str, may_replace: bool) -> anyhow::Result<()> {
    let name = || path.display().to_string();
    let create = |path: &Path| {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(path)
    };
    if !may_replace {
        let mut file = create(path).with_context(name)?;
        return file.write_all(text.as_bytes()).with_context(name);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = create(&beside).and_then(|mut file| file.write_all(text.as_bytes()));
    let replaced = written.and_then(|()| std::fs::rename(&beside, path));
    if replaced.is_err() {
        // The name is ours alone, so nothing of somebody else's goes.
        let _ = std::fs::remove_file(&beside);
    }
    replaced.with_context(name)
}
