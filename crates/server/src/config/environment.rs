//! Options in variables of the environment: `MYRIAD_` and the path of the key, in capitals, with `_` between its parts.
//!
//! They stand over the file and below flags. `MYRIAD_CHANNEL_NAMESPACES="a b"` names namespaces, each of which has variables of its own,
//! such as `MYRIAD_CHANNEL_NAMESPACES_A_PRESENCE`; so have the namespaces of the file. A list of tables may be JSON, too.

use super::ConfigError;
use super::catalogue::{self, Form};
use super::centrifugo::{Foreign, foreign};
use super::keys::{LISTS_OF_TABLES, Table, first_fault, nearest};
use super::written::{Place, Written};
use std::collections::BTreeMap;
use toml::Value;

/// Before the names of our variables.
pub(super) const PREFIX: &str = "MYRIAD";
/// Before the names of Centrifugo's, which are read if somebody asks for it.
pub(super) const CENTRIFUGO_PREFIX: &str = "CENTRIFUGO";

/// Variables that begin with our prefix and say something else: the path of the file, and what Kubernetes and Docker set for a
/// service named myriad.
fn is_of_others(rest: &str) -> bool {
    rest == "CONFIG"
        || rest == "PORT"
        || ["SERVICE_", "PORT_"]
            .iter()
            .any(|begin| rest.starts_with(begin))
}

/// The names of variables that Centrifugo would read.
pub(super) fn of_centrifugo(variables: &Variables) -> Vec<&str> {
    let is_option = |name: &&String| {
        let rest = name.strip_prefix(CENTRIFUGO_PREFIX);
        let rest = rest.and_then(|rest| rest.strip_prefix('_'));
        rest.is_some_and(|rest| !is_of_others(rest))
    };
    variables
        .keys()
        .filter(is_option)
        .map(String::as_str)
        .collect()
}

/// Variables by name, without empty ones: an empty variable is one that is not set.
pub(super) type Variables = BTreeMap<String, String>;

impl Written {
    /// Puts variables of the environment over what is written. Adds those that cannot be read to `faults`.
    pub(super) fn with_environment(
        mut self,
        variables: &Variables,
        prefix: &str,
        faults: &mut Vec<ConfigError>,
    ) -> Self {
        let mut overlay = Overlay {
            variables,
            reads_foreign: prefix == CENTRIFUGO_PREFIX,
            known: Vec::new(),
            used: BTreeMap::new(),
            places: Vec::new(),
            faults: Vec::new(),
            remarks: Vec::new(),
        };
        overlay.table(&mut self.values, Table::Top, prefix, "");
        let Overlay {
            known,
            used,
            places,
            faults: found,
            remarks,
            ..
        } = overlay;
        faults.extend(found);
        self.places.extend(places);
        self.remarks.extend(remarks);
        let begin = format!("{prefix}_");
        let unknown = variables.keys().filter(|name| {
            let rest = name.strip_prefix(&begin);
            rest.is_some_and(|rest| !is_of_others(rest)) && !used.contains_key(*name)
        });
        let unknown = unknown.map(|name| {
            let names = known.iter().map(|known| &known[begin.len()..]);
            match nearest(&name[begin.len()..], names) {
                Some(rest) => {
                    format!("variable {name}: there is no such option; did you mean {begin}{rest}?")
                }
                None => format!("variable {name}: there is no such option"),
            }
        });
        self.remarks.extend(unknown);
        self
    }
}

struct Overlay<'a> {
    variables: &'a Variables,
    /// Whether options may be meant that only Centrifugo has.
    reads_foreign: bool,
    /// The names that a variable may have.
    known: Vec<String>,
    /// The paths that variables were read for.
    used: BTreeMap<String, String>,
    places: Vec<(String, Place)>,
    faults: Vec<ConfigError>,
    remarks: Vec<String>,
}

impl Overlay<'_> {
    /// Reads the variables of a table. `variable` is the beginning of their names, `prefix` that of their paths.
    fn table(&mut self, values: &mut toml::Table, kind: Table, variable: &str, prefix: &str) {
        for option in catalogue::options(kind) {
            let name = format!("{variable}_{}", capitals(option.key));
            let path = format!("{prefix}{}", option.key);
            match kind.inner(option.key) {
                Some(inner) if LISTS_OF_TABLES.contains(&option.key) => {
                    self.list(values, option.key, inner, &name, &path);
                }
                Some(inner) => self.inner(values, option.key, inner, &name, &path),
                None => self.value(values, kind, option, &name, &path),
            }
        }
        if self.reads_foreign {
            for option in foreign(kind) {
                let name = format!("{variable}_{}", capitals(option.key));
                self.foreign(option, &name, &format!("{prefix}{}", option.key));
            }
        }
    }

    /// Takes the variables of an option that only Centrifugo has. Whoever sets them expects something that is not there: where that
    /// would change who gets in or what clients see, nothing is started.
    fn foreign(&mut self, option: &Foreign, name: &str, path: &str) {
        let below = format!("{name}_");
        let variables = self.variables.iter();
        let found: Vec<_> = variables
            .filter(|(variable, _)| *variable == name || variable.starts_with(&below))
            .filter(|(variable, _)| !self.used.contains_key(*variable))
            .collect();
        let mut remarked = Vec::new();
        for (variable, value) in found {
            self.used.insert(variable.clone(), path.into());
            let rest = variable[name.len()..].trim_start_matches('_');
            let vital = option.vital.iter().find(|(key, _)| capitals(key) == rest);
            match vital {
                Some((_, same)) if same.contains(&value.as_str()) => {}
                Some(_) => self.faults.push(ConfigError::Variable {
                    name: variable.clone(),
                    field: path.into(),
                    value: "(...)".into(),
                    advice: option.advice.into(),
                }),
                None => remarked.push(variable.as_str()),
            }
        }
        if let Some(first) = remarked.first() {
            let more = match remarked.len() {
                1 => String::new(),
                count => format!(" and {} more that begin with {below}", count - 1),
            };
            self.remarks.push(format!(
                "variable {first}{more}: not read: {}",
                option.advice
            ));
        }
    }

    /// A table in a table, which is made only if a variable needs it.
    fn inner(&mut self, values: &mut toml::Table, key: &str, kind: Table, name: &str, path: &str) {
        let before = values.get(key).and_then(Value::as_table).cloned();
        let was_written = before.is_some();
        let mut table = before.unwrap_or_default();
        self.table(&mut table, kind, name, &format!("{path}."));
        if was_written || !table.is_empty() {
            values.insert(key.into(), Value::Table(table));
        }
    }

    /// A list of tables that have names.
    fn list(&mut self, values: &mut toml::Table, key: &str, kind: Table, name: &str, path: &str) {
        let mut tables = match values.remove(key) {
            Some(Value::Array(tables)) => tables,
            _ => Vec::new(),
        };
        let was_written = !tables.is_empty();
        let written = self.read(name, path);
        if let Some(text) = written.as_ref().filter(|text| is_json_list(text)) {
            match tables_of(text, kind, path) {
                Ok(all) => {
                    tables = all;
                    let place = || Place::Variable(name.into());
                    let paths = (0..tables.len()).map(|index| format!("{path}[{index}]"));
                    self.places.extend(paths.map(|path| (path, place())));
                }
                Err(advice) => self.faults.push(ConfigError::Variable {
                    name: name.into(),
                    field: path.into(),
                    // It may have keys of the API and headers with secrets.
                    value: "(...)".into(),
                    advice,
                }),
            }
        } else if let Some(names) = written {
            for word in names.split_whitespace() {
                let is_known = tables.iter().any(|table| name_of(table) == Some(word));
                if !is_known {
                    let table = toml::Table::from_iter([("name".into(), word.into())]);
                    let place = Place::Variable(name.into());
                    self.places
                        .push((format!("{path}[{}]", tables.len()), place));
                    tables.push(table.into());
                }
            }
        }
        let mut begins: BTreeMap<String, String> = BTreeMap::new();
        for (index, table) in tables.iter_mut().enumerate() {
            let (Some(word), Value::Table(table)) = (name_of(table).map(str::to_owned), table)
            else {
                continue;
            };
            let begin = format!("{name}_{}", capitals(&word));
            if let Some(other) = begins.insert(begin.clone(), word.clone()) {
                self.refuse_ambiguous(&begin, &other, &word);
                continue;
            }
            self.table(table, kind, &begin, &format!("{path}[{index}]."));
        }
        if was_written || !tables.is_empty() {
            values.insert(key.into(), Value::Array(tables));
        }
    }

    /// Two namespaces whose variables would have the same names.
    fn refuse_ambiguous(&mut self, begin: &str, one: &str, other: &str) {
        let begin = format!("{begin}_");
        let variable = self.variables.keys().find(|name| name.starts_with(&begin));
        if let Some(variable) = variable {
            self.faults.push(ConfigError::Variable {
                name: variable.clone(),
                field: String::new(),
                value: "(...)".into(),
                advice: format!(
                    "is a variable of {one:?} and of {other:?}; write their options in the config file"
                ),
            });
        }
    }

    fn value(
        &mut self,
        values: &mut toml::Table,
        kind: Table,
        option: &catalogue::Described,
        name: &str,
        path: &str,
    ) {
        let Some(text) = self.read(name, path) else {
            return;
        };
        let fault = match parse(option.form, &text) {
            Ok(value) => match kind.fault(option.key, path, &value) {
                None => {
                    values.insert(option.key.into(), value);
                    self.places
                        .push((path.into(), Place::Variable(name.into())));
                    return;
                }
                Some(fault) => fault,
            },
            Err(fault) => fault,
        };
        let value = if option.is_secret {
            "(hidden)".into()
        } else {
            text
        };
        self.faults.push(ConfigError::Variable {
            name: name.into(),
            field: path.into(),
            value,
            advice: fault,
        });
    }

    fn read(&mut self, name: &str, path: &str) -> Option<String> {
        self.known.push(name.into());
        let text = self.variables.get(name)?;
        self.used.insert(name.into(), path.into());
        Some(text.clone())
    }
}

/// A list of tables is their names, or JSON as Centrifugo has it.
fn is_json_list(text: &str) -> bool {
    text.trim_start().starts_with('[')
}

/// The tables of a list in JSON.
fn tables_of(text: &str, kind: Table, path: &str) -> Result<Vec<Value>, String> {
    // The words of the parser could repeat a secret.
    let tables: Vec<toml::Table> = serde_json::from_str(text).map_err(|error| {
        format!(
            "this is no JSON list of tables, from line {}, column {}",
            error.line(),
            error.column()
        )
    })?;
    for (index, table) in tables.iter().enumerate() {
        if let Some((at, advice)) = first_fault(table, kind, &format!("{path}[{index}].")) {
            return Err(format!("{at}: {advice}"));
        }
    }
    Ok(tables.into_iter().map(Value::Table).collect())
}

fn name_of(table: &Value) -> Option<&str> {
    table.as_table()?.get("name")?.as_str()
}

/// A part of a variable's name.
pub(super) fn capitals(text: &str) -> String {
    let capital = |sign: char| match sign.to_ascii_uppercase() {
        sign if sign.is_ascii_alphanumeric() => sign,
        _ => '_',
    };
    text.chars().map(capital).collect()
}

/// The value of a variable: as in the file, but without quotes; a list is words or JSON.
fn parse(form: Form, text: &str) -> Result<Value, String> {
    let json = |text: &str| {
        serde_json::from_str::<Value>(text).map_err(|error| format!("this is no JSON: {error}"))
    };
    match form {
        // As programs in Go read it.
        Form::Flag => match text {
            "true" | "1" | "t" | "T" | "TRUE" | "True" => Ok(true.into()),
            "false" | "0" | "f" | "F" | "FALSE" | "False" => Ok(false.into()),
            _ => Err("write true or false".into()),
        },
        Form::List if text.trim_start().starts_with('[') => json(text),
        Form::List => Ok(text.split_whitespace().collect::<Vec<_>>().into()),
        Form::Json | Form::Table => json(text),
        Form::Count => Ok(text
            .parse::<i64>()
            .map_or_else(|_| text.into(), Value::from)),
        Form::Size
        | Form::Time
        | Form::TimeRange
        | Form::Rate
        | Form::Address
        | Form::Text
        | Form::Word(_) => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(file: &str, variables: &[(&str, &str)]) -> Result<Written, ConfigError> {
        let written = Written::from_text(file, Path::new("a.toml"))?;
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut faults = Vec::new();
        let written = written.with_environment(&variables.collect(), PREFIX, &mut faults);
        ConfigError::several(faults)?;
        Ok(written)
    }

    #[test]
    fn values_are_written_without_quotes() {
        for (name, value, toml) in [
            ("MYRIAD_MAX_CONNECTIONS", "50k", "max-connections = \"50k\""),
            ("MYRIAD_SHARDS", "2", "shards = 2"),
            ("MYRIAD_DEV", "1", "dev = true"),
            ("MYRIAD_ANONYMOUS", "false", "anonymous = false"),
            ("MYRIAD_API_KEY", "123", "api-key = \"123\""),
            (
                "MYRIAD_ALLOWED_ORIGINS",
                "https://a.b null",
                "allowed-origins = [\"https://a.b\", \"null\"]",
            ),
            ("MYRIAD_ANNOUNCE", "[\"a b=1m\"]", "announce = [\"a b=1m\"]"),
            (
                "MYRIAD_CHANNEL_WITHOUT_NAMESPACE_PRESENCE",
                "true",
                "[channel.without_namespace]\npresence = true",
            ),
            (
                "MYRIAD_CLIENT_SUBSCRIBE_TO_USER_PERSONAL_CHANNEL_ENABLED",
                "true",
                "[client.subscribe_to_user_personal_channel]\nenabled = true",
            ),
        ] {
            let written = read("", &[(name, value)]).expect(name);
            assert_eq!(written.values, toml.parse().unwrap(), "{name}");
            assert!(written.remarks.is_empty(), "{:?}", written.remarks);
        }
    }

    #[test]
    fn namespaces_are_named_and_then_have_variables() {
        let written = read(
            "[[channel.namespaces]]\nname = \"in-file\"\npresence = true",
            &[
                ("MYRIAD_CHANNEL_NAMESPACES", "chat in-file x.y"),
                ("MYRIAD_CHANNEL_NAMESPACES_CHAT_HISTORY_SIZE", "5"),
                ("MYRIAD_CHANNEL_NAMESPACES_IN_FILE_JOIN_LEAVE", "true"),
                ("MYRIAD_CHANNEL_NAMESPACES_X_Y_PRESENCE", "true"),
            ],
        )
        .unwrap();
        let expected = "[[channel.namespaces]]\nname = \"in-file\"\npresence = true\njoin_leave = true\n\
            [[channel.namespaces]]\nname = \"chat\"\nhistory_size = 5\n\
            [[channel.namespaces]]\nname = \"x.y\"\npresence = true";
        assert_eq!(written.values, expected.parse().unwrap());
    }

    #[test]
    fn mistakes_name_their_variables() {
        let error = read(
            "",
            &[
                ("MYRIAD_DEV", "yes"),
                ("MYRIAD_DRAIN", "soon"),
                ("MYRIAD_ANNOUNCE", "[1"),
                ("MYRIAD_CHANNEL_NAMESPACES", "a-b a.b"),
                ("MYRIAD_CHANNEL_NAMESPACES_A_B_PRESENCE", "true"),
            ],
        )
        .unwrap_err();
        let found: Vec<_> = error.each().iter().map(ToString::to_string).collect();
        for expected in [
            "variable MYRIAD_DEV = yes: write true or false",
            "variable MYRIAD_DRAIN = soon: ",
            "variable MYRIAD_ANNOUNCE = [1: this is no JSON",
            "variable MYRIAD_CHANNEL_NAMESPACES_A_B_PRESENCE = (...): is a variable of \"a-b\" and of \"a.b\"",
        ] {
            let is_named = found.iter().any(|found| found.starts_with(expected));
            assert!(is_named, "{expected}: {found:#?}");
        }
        assert_eq!(found.len(), 4, "{found:#?}");
    }

    #[test]
    fn variables_that_name_no_option_are_remarked_on() {
        let written = read(
            "",
            &[
                ("MYRIAD_CLIENT_CHANEL_LIMIT", "5"),
                ("MYRIAD_QUITE_ANOTHER", "5"),
                ("MYRIAD_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
                ("MYRIAD_SERVICE_HOST", "10.0.0.1"),
                ("MYRIAD_CONFIG", "a.toml"),
                ("MYRIADX_DEV", "true"),
                ("PATH", "/bin"),
            ],
        )
        .unwrap();
        assert_eq!(
            written.remarks,
            [
                "variable MYRIAD_CLIENT_CHANEL_LIMIT: there is no such option; did you mean MYRIAD_CLIENT_CHANNEL_LIMIT?",
                "variable MYRIAD_QUITE_ANOTHER: there is no such option",
            ]
        );
        assert!(written.values.is_empty());
    }

    #[test]
    fn flags_are_what_programs_in_go_read() {
        for (words, flag) in [
            (["true", "1", "t", "T", "TRUE", "True"], true),
            (["false", "0", "f", "F", "FALSE", "False"], false),
        ] {
            for word in words {
                let written = read("", &[("MYRIAD_DEV", word)]).expect(word);
                assert_eq!(written.values["dev"], Value::Boolean(flag), "{word}");
            }
        }
        assert!(read("", &[("MYRIAD_DEV", "tRUE")]).is_err());
    }

    #[test]
    fn lists_of_tables_may_be_json() {
        let written = read(
            "[[channel.namespaces]]\nname = \"in-file\"",
            &[
                (
                    "MYRIAD_CHANNEL_NAMESPACES",
                    r#"[{"name": "chat", "history_size": 5, "history_ttl": "60s"}, {"name": "news"}]"#,
                ),
                ("MYRIAD_CHANNEL_NAMESPACES_NEWS_PRESENCE", "true"),
                ("MYRIAD_PROXIES", " []"),
            ],
        )
        .unwrap();
        let expected = "[[channel.namespaces]]\nname = \"chat\"\nhistory_size = 5\nhistory_ttl = \"60s\"\n\
            [[channel.namespaces]]\nname = \"news\"\npresence = true";
        assert_eq!(written.values, expected.parse().unwrap());
        for (list, advice) in [
            (
                r#"[{"name": "chat", "histroy_size": 5}]"#,
                "channel.namespaces[0].histroy_size: there is no such key; did you mean history_size?",
            ),
            (
                r#"["chat"]"#,
                "this is no JSON list of tables, from line 1, ",
            ),
            ("[{", "this is no JSON list of tables, from line 1, "),
        ] {
            let error = read("", &[("MYRIAD_CHANNEL_NAMESPACES", list)]).unwrap_err();
            let expected = format!("variable MYRIAD_CHANNEL_NAMESPACES = (...): {advice}");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    fn of_centrifugo(variables: &[(&str, &str)]) -> (Written, Vec<String>) {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut faults = Vec::new();
        let written = Written::default().with_environment(
            &variables.collect(),
            CENTRIFUGO_PREFIX,
            &mut faults,
        );
        let faults = faults.iter().map(ToString::to_string).collect();
        (written, faults)
    }

    /// A server that was told of TLS and starts without it would send passwords in the clear.
    #[test]
    fn what_centrifugo_would_do_for_safety_ends_the_start() {
        for (name, value, advice) in [
            (
                "CENTRIFUGO_HTTP_SERVER_TLS_ENABLED",
                "true",
                "for TLS write tls-listen, tls-certificate and tls-key",
            ),
            (
                "CENTRIFUGO_HTTP_SERVER_INTERNAL_PORT",
                "9000",
                "internal-listen",
            ),
            ("CENTRIFUGO_ENGINE_TYPE", "redis", "there is no Redis here"),
            ("CENTRIFUGO_BROKER_ENABLED", "1", "there is no Redis here"),
            (
                "CENTRIFUGO_CHANNEL_PRIVATE_PREFIX",
                "!",
                "cannot be changed",
            ),
            (
                "CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_SUBSCRIPTION_TYPE",
                "map",
                "map and shared-poll",
            ),
            (
                "CENTRIFUGO_SSE_HANDLER_PREFIX",
                "/events",
                "paths cannot be changed",
            ),
            ("CENTRIFUGO_HTTP_API_DISABLED", "true", "internal-listen"),
            (
                "CENTRIFUGO_CHANNEL_PROXY_MAP_PUBLISH_ENDPOINT",
                "http://a",
                "map and shared-poll",
            ),
            (
                "CENTRIFUGO_CONSUMERS",
                "[{\"name\": \"k\"}]",
                "call the API",
            ),
        ] {
            let (_, faults) = of_centrifugo(&[(name, value)]);
            assert_eq!(faults.len(), 1, "{name}: {faults:?}");
            assert!(
                faults[0].starts_with(&format!("variable {name} = (...): ")),
                "{faults:?}"
            );
            assert!(faults[0].contains(advice), "{faults:?}");
        }
        let all = [
            ("CENTRIFUGO_ENGINE_TYPE", "redis"),
            ("CENTRIFUGO_HTTP_SERVER_TLS_ENABLED", "true"),
        ];
        assert_eq!(of_centrifugo(&all).1.len(), 2, "all of them are named");
    }

    #[test]
    fn what_centrifugo_would_do_besides_is_remarked_on() {
        let (written, faults) = of_centrifugo(&[
            ("CENTRIFUGO_ADMIN_ENABLED", "true"),
            ("CENTRIFUGO_ADMIN_PASSWORD", "p"),
            ("CENTRIFUGO_ENGINE_TYPE", "memory"),
            ("CENTRIFUGO_HTTP_SERVER_TLS_ENABLED", "False"),
            ("CENTRIFUGO_SHUTDOWN_TIMEOUT", "30s"),
            ("CENTRIFUGO_CLIENT_CHANEL_LIMIT", "5"),
        ]);
        assert_eq!(faults, [""; 0]);
        let expected = [
            "variable CENTRIFUGO_ADMIN_ENABLED and 1 more that begin with CENTRIFUGO_ADMIN_: not read: there is no web interface",
            "variable CENTRIFUGO_SHUTDOWN_TIMEOUT: not read: write drain at the top",
            "variable CENTRIFUGO_CLIENT_CHANEL_LIMIT: there is no such option; did you mean CENTRIFUGO_CLIENT_CHANNEL_LIMIT?",
        ];
        assert_eq!(
            written.remarks.len(),
            expected.len(),
            "{:?}",
            written.remarks
        );
        for (remark, expected) in written.remarks.iter().zip(expected) {
            assert!(remark.starts_with(expected), "{remark}");
        }
    }
}
