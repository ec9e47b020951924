//! Options as flags of the command line. Their help is that of the catalogue, so that it cannot differ from the config file's.

use super::Options;
use super::catalogue::Form;
use super::default_file::{help, tables_in_words};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

/// Options from the command line, and which of them were given.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// What the flags say.
    pub options: Options,
    /// The names of those that were given.
    pub given: Vec<String>,
}

impl Flags {
    fn described(command: Command) -> Command {
        let command = command.mut_args(|arg| {
            let Some((group, option, help)) = arg.get_long().and_then(help) else {
                return arg;
            };
            let arg = arg.help(help).help_heading(group.heading);
            match option.form {
                // A list has one value for each time that its flag is given; words are listed by themselves. What a text says is the
                // option's own word, such as FILE.
                Form::List | Form::Word(_) | Form::Text => arg,
                form => arg.value_name(form.name()),
            }
        });
        command.after_help(format!(
            "TIME is such as 10s or 250ms, SIZE such as 64KiB, COUNT such as 1024 or 50k.\n\n\
             Only in the config file; `myriad config default` shows all of it:\n{}\n\n\
             Every option can also stand in the config file, under the same name: max-connections = \"50k\". Each has a variable \
             of the environment: MYRIAD_MAX_CONNECTIONS. Flags stand over variables, and these over the file.\n\
             Exit codes: 0 stopped by a signal after draining, 1 failed, 104 bad arguments or config.",
            tables_in_words()
        ))
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        Self::described(Options::augment_args(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::described(Options::augment_args_for_update(command))
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        // Identifiers are the names of the fields.
        let ids: Vec<_> = matches.ids().map(clap::Id::as_str).collect();
        Ok(Self {
            options: Options::from_arg_matches(matches)?,
            given: ids
                .into_iter()
                .filter(given)
                .map(|id| id.replace('_', "-"))
                .collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
