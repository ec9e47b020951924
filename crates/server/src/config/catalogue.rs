//! What people read about every option: one description for `config default`, `serve --help`, `docs/configuration.md`, variables of
//! the environment, and the lines of a reload.
//!
//! A key that the parser takes and that is not described here fails a test, and so does a description without a key, or one
//! whose default is not what the server does.

mod api;
mod application;
mod channel;
mod client;
mod server;
mod token;
mod webhooks;

pub(super) use api::{API_KEY, HTTP_API};
pub(super) use application::{
    CHANNEL_PROXY, CLIENT_PROXY, NAMED_PROXY, PROXY, PROXY_HTTP, RPC, RPC_NAMESPACE, RPC_PING,
    SWITCHED_PROXY,
};
pub(super) use channel::{CHANNEL, NAMESPACE};
pub(super) use client::{CLIENT, PERSONAL_CHANNEL, RATE_LIMITS};
pub(super) use server::{SERVER, TRANSPORT};
pub(super) use token::TOKEN;
pub(super) use webhooks::{WEBHOOK_ENDPOINT, WEBHOOKS};

use super::keys::Table;

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `true` or `false`.
    Flag,
    /// `50k`.
    Count,
    /// `64KiB`.
    Size,
    /// `25s`.
    Time,
    /// `30s..90s`.
    TimeRange,
    /// `20/s`.
    Rate,
    /// `127.0.0.1:8000`.
    Address,
    /// Any text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Texts.
    List,
    /// A table of texts by name, or a list of tables without descriptions of their own.
    Json,
    /// A table with a description of its own.
    Table,
}

impl Form {
    /// What a value is called where it is left out, as in `--drain TIME`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Flag => "true|false",
            Self::Count => "COUNT",
            Self::Size => "SIZE",
            Self::Time | Self::TimeRange => "TIME",
            Self::Rate => "RATE",
            Self::Address => "ADDRESS:PORT",
            Self::Text => "TEXT",
            Self::Word(_) => "WORD",
            Self::List => "LIST",
            Self::Json => "TABLE",
            Self::Table => "",
        }
    }

    /// What may be written.
    pub(super) fn sentence(self) -> String {
        match self {
            Self::Flag => "true or false".into(),
            Self::Count => "a count, such as 1024 or 50k".into(),
            Self::Size => "a size, such as 64KiB".into(),
            Self::Time => "a time, such as 10s or 250ms".into(),
            Self::TimeRange => "a time, such as 30s, or a range, such as 30s..90s".into(),
            Self::Rate => "a rate, such as 20/s or 300/m; 0 for no limit".into(),
            Self::Address => "an address and a port".into(),
            Self::Text => "text".into(),
            Self::Word(words) => match words {
                [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                words => words.join(""),
            },
            Self::List => "a list of texts".into(),
            Self::Json => "a table".into(),
            Self::Table => "a table".into(),
        }
    }

    /// A value in TOML.
    pub(super) fn toml(self, value: &str) -> String {
        match self {
            Self::Size
            | Self::Time
            | Self::TimeRange
            | Self::Rate
            | Self::Address
            | Self::Text
            | Self::Word(_) => toml::Value::from(value).to_string(),
            Self::Count if value.parse::<u64>().is_err() => toml::Value::from(value).to_string(),
            Self::Flag | Self::Count | Self::List | Self::Json | Self::Table => value.into(),
        }
    }
}

/// What holds where nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standard {
    /// This value.
    Value(&'static str),
    /// Something that depends on the machine or on other options.
    Depends {
        /// What, in words.
        on: &'static str,
        /// A value that somebody might write.
        example: &'static str,
    },
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) key: &'static str,
    pub(super) form: Form,
    pub(super) standard: Standard,
    /// One or two sentences.
    pub(super) about: &'static str,
    /// A reload changes it.
    pub(super) reloads: bool,
    /// No log says its value.
    pub(super) is_secret: bool,
    /// Of several tables with the same options, the first does not take it.
    pub(super) is_not_of_first: bool,
}

impl Described {
    /// An option that always has the same default, and that a reload changes.
    const fn new(
        key: &'static str,
        form: Form,
        standard: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            key,
            form,
            standard: Standard::Value(standard),
            about,
            reloads: true,
            is_secret: false,
            is_not_of_first: false,
        }
    }

    /// An option whose default depends on something, with an example.
    const fn depends(
        key: &'static str,
        form: Form,
        on: &'static str,
        example: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            standard: Standard::Depends { on, example },
            ..Self::new(key, form, "", about)
        }
    }

    /// A key that has tables below it.
    const fn table(key: &'static str, about: &'static str) -> Self {
        Self::new(key, Form::Table, "", about)
    }

    /// It needs a restart.
    const fn fixed(self) -> Self {
        Self {
            reloads: false,
            ..self
        }
    }

    /// No log may say its value.
    const fn secret(self) -> Self {
        Self {
            is_secret: true,
            ..self
        }
    }

    /// Of several tables with the same options, the first does not take it.
    const fn not_of_first(self) -> Self {
        Self {
            is_not_of_first: true,
            ..self
        }
    }

    /// The default in words.
    pub(super) fn default_words(&self) -> &'static str {
        match self.standard {
            Standard::Value("") if self.form != Form::Flag => "none",
            Standard::Value("[]" | "{}") => "none",
            Standard::Value(value) => value,
            Standard::Depends { on, .. } => on,
        }
    }

    /// The default, or else the example, in TOML.
    pub(super) fn example(&self) -> String {
        match self.standard {
            Standard::Value(value) => self.form.toml(value),
            Standard::Depends { example, .. } => self.form.toml(example),
        }
    }
}

/// Options that belong together, under a heading.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) heading: &'static str,
    pub(super) options: &'static [Described],
}

/// The description of an option of a table.
pub(super) fn find(table: Table, key: &str) -> Option<&'static Described> {
    options(table).find(|option| option.key == key)
}

/// All options of a table.
pub(super) fn options(table: Table) -> impl Iterator<Item = &'static Described> {
    table.groups().iter().flat_map(|group| group.options)
}
