//! `myriad man`: a manual page for each command, as packages ship them.

use crate::say;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;

/// Writes manual pages.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: myriad man ~/.local/share/man/man1\n\
                  SOURCE_DATE_EPOCH, seconds since 1970, is the date of the pages [default: now].\n\
                  Exit codes: 0 written, 1 a file cannot be written, 104 bad arguments.")]
pub(crate) struct Arguments {
    /// Where the pages are written; made if it is not there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Who sets this wants the same bytes from the same sources: <https://reproducible-builds.org/specs/source-date-epoch/>.
const DATE_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Writes the pages of this command line.
pub(crate) fn run(arguments: &Arguments, mut line: Command) -> ExitCode {
    line.build();
    let written = std::fs::create_dir_all(&arguments.folder)
        .and_then(|()| write_pages(&line, &[], &date(), &arguments.folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let folder = arguments.folder.display();
            say(format_args!(
                "error: cannot write manual pages into {folder}: {error}"
            ));
            ExitCode::FAILURE
        }
    }
}

/// Today, or the day that the environment names, as `2026-11-29`.
fn date() -> String {
    let named = std::env::var(DATE_VARIABLE).ok();
    let named = named.and_then(|text| text.parse::<i64>().ok());
    let seconds = named.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0))
    });
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    time.unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .date()
        .to_string()
}

/// Writes the page of a command and those of its own commands. `related` are the pages that it names at its end.
fn write_pages(command: &Command, related: &[String], date: &str, folder: &Path) -> io::Result<()> {
    let children: Vec<&Command> = shown(command.get_subcommands()).collect();
    let names: Vec<String> = children.iter().map(|child| page_name(child)).collect();
    let file = folder.join(format!("{}.1", page_name(command)));
    let see_also = [related, &names].concat();
    std::fs::write(file, tidied(&page(command, &see_also, date)?))?;
    for child in children {
        let own = page_name(child);
        let siblings = names.iter().filter(|name| **name != own).cloned();
        let related: Vec<String> = std::iter::once(page_name(command))
            .chain(siblings)
            .collect();
        write_pages(child, &related, date, folder)?;
    }
    Ok(())
}

fn shown<'a>(commands: impl Iterator<Item = &'a Command>) -> impl Iterator<Item = &'a Command> {
    commands.filter(|command| !command.is_hide_set())
}

/// `myriad-config-check`, once the command line is built.
fn page_name(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

/// A page, with its sections in the order of man-pages(7).
fn page(command: &Command, see_also: &[String], date: &str) -> io::Result<Vec<u8>> {
    let command = command.clone().subcommand_help_heading("COMMANDS");
    let man = Man::new(command.clone())
        .title(page_name(&command).to_uppercase())
        .date(date)
        .source(concat!("Myriad ", env!("CARGO_PKG_VERSION")))
        .manual("Myriad Manual");
    let mut bytes = Vec::new();
    man.render_title(&mut bytes)?;
    man.render_name_section(&mut bytes)?;
    synopsis(&command).to_writer(&mut bytes)?;
    man.render_description_section(&mut bytes)?;
    if command.get_arguments().any(|one| !one.is_hide_set()) {
        man.render_options_section(&mut bytes)?;
    }
    if shown(command.get_subcommands()).next().is_some() {
        man.render_subcommands_section(&mut bytes)?;
    }
    if let Some(text) = command.get_after_help() {
        for (heading, lines) in sections(&text.to_string()) {
            section(heading, &lines).to_writer(&mut bytes)?;
        }
    }
    see_also_section(see_also).to_writer(&mut bytes)?;
    Ok(bytes)
}

/// The page without what mandoc warns of. The generator writes two breaks for an empty line, and defines the apostrophe in each section.
fn tidied(page: &[u8]) -> String {
    let text = String::from_utf8_lossy(page);
    let (start, rest) = text.split_at(text.find(".TH ").unwrap_or(0));
    let rest = rest.replace(start, "");
    format!("{start}{}", rest.replace(".br\n\n.br\n", ".sp\n"))
}

/// The usage of the help. The generator's own synopsis names every option, which are a hundred in `serve`.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut roff = Roff::default();
    roff.control("SH", ["SYNOPSIS"]);
    for (index, line) in usage.trim_start_matches("Usage:").lines().enumerate() {
        if index > 0 {
            roff.control("br", []);
        }
        match line.trim().strip_prefix(name) {
            Some(rest) => roff.text([bold(name), roman(rest)]),
            None => roff.text([roman(line.trim())]),
        };
    }
    roff
}

/// The text behind the options of the help, by headings of a page.
fn sections(text: &str) -> Vec<(&'static str, Vec<String>)> {
    let headings = [
        ("Exit codes:", "EXIT STATUS"),
        ("Examples:", "EXAMPLES"),
        ("Example:", "EXAMPLES"),
    ];
    let mut sections: Vec<(&str, Vec<String>)> = Vec::new();
    for line in text.lines() {
        let mut found = headings.iter();
        let found =
            found.find_map(|(start, heading)| Some((*heading, line.strip_prefix(start)?.trim())));
        // An indented line belongs to the one above it.
        let (heading, line) = match (found, sections.last()) {
            (Some(found), _) => found,
            (None, Some((heading, _))) if line.starts_with(' ') => (*heading, line.trim()),
            (None, _) => ("NOTES", line),
        };
        match sections.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, lines)) => lines.push(line.to_owned()),
            None => sections.push((heading, vec![line.to_owned()])),
        }
    }
    let order = ["EXIT STATUS", "NOTES", "EXAMPLES"];
    sections.sort_by_key(|(heading, _)| order.iter().position(|known| known == heading));
    sections
}

fn section(heading: &str, lines: &[String]) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", [heading]);
    let lines = lines.iter().filter(|line| !line.is_empty());
    for (index, line) in lines.enumerate() {
        // Columns of the help: a name, spaces, and what it is.
        if let Some((name, text)) = line.split_once("  ") {
            roff.control("TP", []);
            roff.text([bold(name)]);
            roff.text([roman(text.trim_start())]);
            continue;
        }
        if index > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(line)]);
    }
    roff
}

fn see_also_section(pages: &[String]) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["SEE ALSO"]);
    let mut text: Vec<Inline> = Vec::new();
    for name in pages {
        if !text.is_empty() {
            text.push(roman(", "));
        }
        text.extend([bold(name), roman("(1)")]);
    }
    roff.text(text);
    roff
}

#[cfg(test)]
mod tests {
    use super::sections;

    #[test]
    fn what_stands_behind_the_options_has_the_headings_of_a_page() {
        let text = "Examples: a -c 1\n          a -c 2\nMind the gap.\nExit codes: 0 good, 1 bad.";
        let expected = [
            ("EXIT STATUS", vec!["0 good, 1 bad.".to_owned()]),
            ("NOTES", vec!["Mind the gap.".to_owned()]),
            ("EXAMPLES", vec!["a -c 1".to_owned(), "a -c 2".to_owned()]),
        ];
        assert_eq!(sections(text), expected);
    }
}
