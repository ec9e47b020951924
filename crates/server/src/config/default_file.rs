//! The config file with every option and its default, and the page that lists them.

use super::catalogue::{Described, Form, Group, Standard, find};
use super::keys::{LISTS_OF_TABLES, Table};
use std::fmt::Write as _;

const BEGIN: &str = "\
# Every option of `myriad serve` with its default. Remove the # before a key to change it, and the # before the header of its table.
# Where the default depends on something, there is an example, which is not the default.
#
# Each option has a variable of the environment, too: MYRIAD_ and its path in capitals, such as MYRIAD_CLIENT_CHANNEL_LIMIT.
# Flags stand over variables, and variables over this file. `myriad config check FILE` names every mistake.
";

/// A config file with every option, its default, its unit and a sentence. All options are commented out.
#[must_use]
pub fn default_file() -> String {
    file(|_| false)
}

/// The same, with those options in force that `is_live` picks.
fn file(is_live: fn(&Described) -> bool) -> String {
    let mut text = BEGIN.to_owned();
    for section in sections() {
        section.write(&mut text, is_live);
    }
    text
}

/// A table of the file.
struct Section {
    table: Table,
    path: String,
    is_list: bool,
    /// In a list, so that it belongs to one of several.
    is_in_list: bool,
    about: &'static str,
    /// The path of the section that describes the same options.
    described_in: Option<String>,
}

/// All tables, each before those that it contains.
fn sections() -> Vec<Section> {
    let mut sections = vec![Section {
        table: Table::Top,
        path: String::new(),
        is_list: false,
        is_in_list: false,
        about: "",
        described_in: None,
    }];
    let mut next = 0;
    while let Some(section) = sections.get(next) {
        let (table, prefix) = (section.table, section.path.clone());
        let is_in_list = section.is_list || section.is_in_list;
        next += 1;
        let mut at = next;
        for option in super::catalogue::options(table) {
            let Some(inner) = table.inner(option.key) else {
                continue;
            };
            let path = match &*prefix {
                "" => option.key.to_owned(),
                prefix => format!("{prefix}.{}", option.key),
            };
            let same = sections.iter().find(|section| section.table == inner);
            let described_in = same.map(|section| section.path.clone());
            let section = Section {
                table: inner,
                path,
                is_list: LISTS_OF_TABLES.contains(&option.key),
                is_in_list,
                about: option.about,
                described_in,
            };
            sections.insert(at, section);
            at += 1;
        }
    }
    sections
}

impl Section {
    fn header(&self) -> String {
        if self.is_list {
            format!("[[{}]]", self.path)
        } else {
            format!("[{}]", self.path)
        }
    }

    /// The groups of options to write here: where the others are described elsewhere, only those that are not there.
    fn options(&self) -> impl Iterator<Item = (&'static Group, Vec<&'static Described>)> {
        let is_first = self.described_in.is_none();
        self.table.groups().iter().filter_map(move |group| {
            let options = group.options.iter();
            let options: Vec<_> = options
                .filter(|option| option.form != Form::Table)
                .filter(|option| option.is_not_of_first != is_first)
                .collect();
            (!options.is_empty()).then_some((group, options))
        })
    }

    fn write(&self, text: &mut String, is_live: fn(&Described) -> bool) {
        // There is no list until somebody writes its first table.
        let is_live = |option: &Described| !self.is_list && !self.is_in_list && is_live(option);
        if self.table != Table::Top {
            let live = self.options().any(|(_, all)| all.into_iter().any(is_live));
            let sign = if live { "" } else { "#" };
            let _ = write!(text, "\n\n# {}\n{sign}{}\n", self.about, self.header());
        }
        for (group, options) in self.options() {
            let _ = write!(text, "\n# --- {} ---\n", group.heading);
            for option in options {
                let sign = if is_live(option) { "" } else { "#" };
                let restart = if option.reloads {
                    ""
                } else {
                    " A change needs a restart."
                };
                // An example that looks like a default is switched on by people who only want to see it.
                let begin = match option.standard {
                    Standard::Value(_) => sign,
                    Standard::Depends { .. } => "# Example: ",
                };
                let _ = write!(
                    text,
                    "\n# {}\n# Value: {}. Default: {}.{restart}\n{begin}{} = {}\n",
                    option.about,
                    option.form.sentence(),
                    option.default_words(),
                    option.key,
                    option.example(),
                );
            }
        }
        if let Some(other) = &self.described_in {
            let _ = write!(
                text,
                "\n# The other options are those of [{other}], above.\n"
            );
        }
    }
}

/// The tables of `docs/configuration.md`.
#[cfg(test)]
fn page() -> String {
    let mut text = String::new();
    for section in sections() {
        if section.table == Table::Top {
            text.push_str("## At the top of the file\n\nEach of them is a flag too: `--listen`.\n");
        } else {
            let _ = write!(text, "\n## `{}`\n\n{}\n", section.header(), section.about);
        }
        for (group, options) in section.options() {
            let _ = write!(
                text,
                "\n**{}**\n\n| key | value | default | | reload |\n| --- | --- | --- | --- | --- |\n",
                group.heading
            );
            for option in options {
                let default = match option.standard {
                    Standard::Value(_) => format!("`{}`", option.example()),
                    Standard::Depends { on, .. } => on.to_owned(),
                };
                let reload = if option.reloads { "yes" } else { "restart" };
                let _ = writeln!(
                    text,
                    "| `{}` | {} | {default} | {} | {reload} |",
                    option.key,
                    option.form.sentence(),
                    option.about,
                );
            }
        }
        if let Some(other) = &section.described_in {
            let _ = write!(text, "\nThe other options are those of `[{other}]`.\n");
        }
    }
    text
}

/// What a flag's help says of its option, if there is one of this name.
pub(super) fn help(key: &str) -> Option<(&'static Group, &'static Described, String)> {
    let option = find(Table::Top, key)?;
    let mut groups = Table::Top.groups().iter();
    let group = groups.find(|group| group.options.iter().any(|one| one.key == key))?;
    let help = format!("{} [default: {}]", option.about, option.default_words());
    Some((group, option, help))
}

/// The tables that have no flags, for the end of the help.
pub(super) fn tables_in_words() -> String {
    let sections = sections();
    let headers = sections
        .iter()
        .filter(|section| section.table != Table::Top)
        .map(|section| format!("  {:<46}{}", section.header(), section.about));
    headers.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::options;
    use super::super::{Config, Options, Sources};
    use super::*;
    use crate::Machine;
    use std::path::Path;

    const MACHINE: Machine = Machine::OF_TESTS;

    fn config(text: &str) -> Config {
        let options = Options::from_text(text, Path::new("a.toml"));
        let options = options.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let config = options.resolve(&MACHINE);
        config.unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// Everything that a configuration means, without what was written.
    fn meaning(text: &str) -> String {
        let config = Config {
            options: Box::default(),
            ..config(text)
        };
        format!("{config:#?}")
    }

    #[test]
    fn every_key_is_described_and_every_description_is_of_a_key() {
        for section in sections() {
            let described: Vec<_> = options(section.table).map(|option| option.key).collect();
            let mut sorted = described.clone();
            sorted.sort_unstable();
            let mut keys = section.table.keys().to_vec();
            keys.sort_unstable();
            assert_eq!(sorted, keys, "[{}]", section.path);
            for option in options(section.table) {
                let is_table = section.table.inner(option.key).is_some();
                assert_eq!(is_table, option.form == Form::Table, "{}", option.key);
                assert!(option.about.ends_with('.'), "{}: a sentence", option.key);
            }
        }
    }

    #[test]
    fn the_default_file_changes_nothing() {
        let text = default_file();
        assert_eq!(meaning(&text), meaning(""));
        for section in sections() {
            for option in options(section.table).filter(|option| option.form != Form::Table) {
                let begin = match option.standard {
                    Standard::Value(_) => "\n#",
                    Standard::Depends { .. } => "\n# Example: ",
                };
                let line = format!("{begin}{} = ", option.key);
                assert!(text.contains(&line), "{} of [{}]", option.key, section.path);
            }
        }
    }

    /// People remove the # before what they read as the default.
    #[test]
    fn every_line_that_can_be_switched_on_is_the_default() {
        let text = default_file();
        assert!(text.contains("\n# Example: anonymous = true\n"), "{text}");
        assert!(!text.contains("\n#anonymous"), "{text}");
    }

    #[test]
    fn the_defaults_are_those_of_the_server() {
        let text = file(|option| {
            matches!(option.standard, Standard::Value(_)) && option.form != Form::Table
        });
        assert!(text.contains("\nping-interval = \"25s\"\n"), "{text}");
        assert_eq!(meaning(&text), meaning(""));
    }

    #[test]
    fn every_example_can_be_written() {
        for section in sections() {
            for option in options(section.table).filter(|option| option.form != Form::Table) {
                let Standard::Depends { .. } = option.standard else {
                    continue;
                };
                if option.is_not_of_first && section.described_in.is_none() {
                    continue;
                }
                let header = match section.table {
                    Table::Top => String::new(),
                    _ => section.header(),
                };
                // What an element of a list must have.
                let needed = match section.table {
                    Table::Namespace => &["name = \"other\""][..],
                    Table::ApiKey if option.key == "key_sha256" => &["name = \"other\""],
                    Table::ApiKey => &["name = \"other\"", "key = \"k\""],
                    Table::WebhookEndpoint => &["name = \"other\"", "url = \"http://a\""],
                    _ => &[],
                };
                let needed: String = needed
                    .iter()
                    .filter(|line| section.is_list && !line.starts_with(option.key))
                    .flat_map(|line| [line, "\n"])
                    .collect();
                let directory = match option.key {
                    "history-disk-max" | "history_durability" => "history-dir = \"/a\"\n",
                    _ => "",
                };
                let text = format!(
                    "{directory}{header}\n{needed}{} = {}",
                    option.key,
                    option.example()
                );
                if option.key.starts_with("tls-") {
                    // Their files are read, and there are none here.
                    let taken = Options::from_text(&text, Path::new("a.toml"));
                    assert!(taken.is_ok(), "{text}");
                    continue;
                }
                config(&text);
            }
        }
    }

    #[test]
    fn the_page_lists_every_option() {
        const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        const BEGIN: &str = "<!-- A test writes what follows: MYRIAD_WRITE_DOCS=1. -->\n";
        let text = std::fs::read_to_string(PAGE).unwrap();
        let (before, after) = text.split_once(BEGIN).expect("the mark");
        if std::env::var_os("MYRIAD_WRITE_DOCS").is_some() {
            std::fs::write(PAGE, format!("{before}{BEGIN}\n{}", page())).unwrap();
        } else {
            assert!(
                after == format!("\n{}", page()),
                "docs/configuration.md is old: run this test with MYRIAD_WRITE_DOCS=1"
            );
        }
    }

    #[test]
    fn variables_are_read_for_every_option() {
        let single = |section: &&Section| !section.is_list && !section.is_in_list;
        for section in sections().iter().filter(single) {
            for option in options(section.table).filter(|option| option.form != Form::Table) {
                if option.is_not_of_first {
                    continue;
                }
                let path = format!("{}.{}", section.path, option.key);
                let name = path.trim_start_matches('.').to_uppercase();
                let name = format!("MYRIAD_{}", name.replace(['.', '-'], "_"));
                let value = match option.standard {
                    Standard::Value(value) => value,
                    Standard::Depends { example, .. } => example,
                };
                let sources = Sources {
                    variables: vec![(name.clone(), value.into())],
                    ..Sources::default()
                };
                let options = sources
                    .read()
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(options.written.remarks, [""; 0], "{name}");
                assert_eq!(
                    options.written.places.is_empty(),
                    value.is_empty(),
                    "{name}"
                );
            }
        }
    }
}
