//! Where options come from, in their order: flags, the environment, the config file, defaults.

use super::environment::{self, CENTRIFUGO_PREFIX, PREFIX, Variables};
use super::written::{Written, is_of_tls};
use super::{Config, ConfigError, LogFormat, Options, TlsCheck};
use crate::machine::Machine;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the options of a server come from, so that they can be read again.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// What the command line says.
    pub flags: Options,
    /// The names of the flags that were given.
    pub flags_given: Vec<String>,
    /// The config file.
    pub file: Option<PathBuf>,
    /// Variables of the environment; those that begin with another word than ours are of no meaning.
    pub variables: Vec<(String, String)>,
    /// Reads variables with Centrifugo's prefix, below ours.
    pub centrifugo: bool,
}

/// MiB of a config file. 10,000 namespaces with twenty options each have 6.
const FILE_MEBIBYTES_MAX: u64 = 16;

/// The mistakes that one check names.
const MISTAKES_MAX: usize = 50;

impl Sources {
    /// Reads all of them, as they are now.
    ///
    /// # Errors
    /// The file cannot be read, or something cannot be understood; the error says where, and names every key.
    pub fn read(&self) -> Result<Options, ConfigError> {
        let (written, faults) = self.written()?;
        ConfigError::several(faults)?;
        with_flags(&self.flags, written)
    }

    /// Whether the file is a copy that systemd makes for a service when it starts (`LoadCredential`).
    #[must_use]
    pub(crate) fn is_credential(&self) -> bool {
        let is_directory = |(name, _): &&(String, String)| name == "CREDENTIALS_DIRECTORY";
        let directory = self.variables.iter().find(is_directory);
        let directory = directory.filter(|(_, directory)| !directory.is_empty());
        match (&self.file, directory) {
            (Some(file), Some((_, directory))) => file.starts_with(directory),
            _ => false,
        }
    }

    /// How the log is to be written, as far as that can be known: also if the options cannot be used.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        let written = self.written().ok();
        let options = written.and_then(|(written, _)| with_flags(&self.flags, written).ok());
        let format = options.map_or(self.flags.log_format, |options| options.log_format);
        format.unwrap_or_default()
    }

    /// Checks everything that is written.
    ///
    /// # Errors
    /// All values that cannot be used. Where one follows from another, only the first is sure to be named.
    pub fn resolve(&self, machine: &Machine) -> Result<Config, ConfigError> {
        self.resolve_written(self.written()?, machine)
    }

    fn resolve_written(
        &self,
        (mut written, mut mistakes): (Written, Vec<ConfigError>),
        machine: &Machine,
    ) -> Result<Config, ConfigError> {
        // An option of TLS that cannot be read makes the others look wrong, wherever they are written.
        let mut tls = TlsCheck::Whole;
        if mistakes.iter().any(is_about_tls) {
            tls = TlsCheck::LeftOut;
        }
        loop {
            let options = with_flags(&self.flags, written.clone());
            let found = match options.and_then(|options| options.resolve_with(machine, tls)) {
                Ok(config) if mistakes.is_empty() => return Ok(config),
                Ok(_) => break,
                Err(error) => error.into_each(),
            };
            let is_tls = found.iter().any(is_about_tls);
            // Without what is at fault, the next mistake shows. Those of TLS are found together.
            let next = match is_tls {
                true => Some(written.clone()),
                false => found
                    .iter()
                    .find_map(|mistake| written.without(mistake.path()?)),
            };
            if is_tls {
                tls = TlsCheck::LeftOut;
            }
            let count_before = mistakes.len();
            for mistake in found {
                let words = mistake.to_string();
                if mistakes.iter().all(|known| known.to_string() != words) {
                    mistakes.push(mistake);
                }
            }
            let is_new = mistakes.len() > count_before;
            match next.filter(|_| is_new && mistakes.len() < MISTAKES_MAX) {
                Some(next) => written = next,
                None => break,
            }
        }
        Err(ConfigError::Several(mistakes))
    }

    /// What is written, without what cannot be read, and the faults of that.
    fn written(&self) -> Result<(Written, Vec<ConfigError>), ConfigError> {
        let (written, mut faults) = match &self.file {
            None => Default::default(),
            Some(path) => {
                let text = myriad_files::read_text(path, FILE_MEBIBYTES_MAX);
                let text = text.map_err(|source| ConfigError::File {
                    path: path.clone(),
                    source,
                })?;
                Written::read_text(&text, path)?
            }
        };
        let variables = self.variables.iter().cloned();
        let variables: Variables = variables.filter(|(_, value)| !value.is_empty()).collect();
        let unread = environment::of_centrifugo(&variables);
        let written = if self.centrifugo {
            written.with_environment(&variables, CENTRIFUGO_PREFIX, &mut faults)
        } else {
            written
        };
        let mut written = written.with_environment(&variables, PREFIX, &mut faults);
        if let (false, Some(first)) = (self.centrifugo, unread.first()) {
            written.remarks.push(format!(
                "variables that begin with CENTRIFUGO_ are not read (there are {}, such as {first}): start with --centrifugo-env to read them below those that begin with MYRIAD_",
                unread.len()
            ));
        }
        written.flags = self.flags_given.clone();
        Ok((written, faults))
    }
}

/// Checks the text of a config file alone, as [`Sources::resolve`] checks a file; `path` is its name in mistakes.
///
/// # Errors
/// As there.
pub fn check_text(text: &str, path: &Path, machine: &Machine) -> Result<Config, ConfigError> {
    let written = Written::read_text(text, path)?;
    Sources::default().resolve_written(written, machine)
}

fn is_about_tls(mistake: &ConfigError) -> bool {
    match mistake {
        ConfigError::Key { key, .. } => is_of_tls(key),
        mistake => mistake.path().is_some_and(is_of_tls),
    }
}

fn with_flags(flags: &Options, written: Written) -> Result<Options, ConfigError> {
    let options = Options::from_written(Arc::new(written))?;
    Ok(flags.clone().over(options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::SocketAddr;

    const MACHINE: Machine = Machine::OF_TESTS;

    /// A file that is removed at the end.
    struct File(PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> Self {
            let name = format!("myriad-sources-{}-{name}.toml", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::write(&path, text).unwrap();
            Self(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn sources(file: Option<&File>, variables: &[(&str, &str)]) -> Sources {
        let variables = variables.iter();
        Sources {
            file: file.map(|file| file.0.clone()),
            variables: variables
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            ..Sources::default()
        }
    }

    fn mistakes(sources: &Sources) -> Vec<String> {
        let error = sources.resolve(&MACHINE).unwrap_err();
        let path = sources.file.as_ref().map(|path| path.display().to_string());
        let path = path.unwrap_or_else(|| "no file".into());
        let each = error.each().iter();
        each.map(|mistake| mistake.to_string().replace(&path, "FILE"))
            .collect()
    }

    #[test]
    fn every_key_that_cannot_be_read_is_named() {
        let file = File::new(
            "keys",
            "max-conections = 5\nlisten = \"nowhere\"\n[client]\ninsecure = 3\nchannel_limit = 9\n\
             [[channel.namespaces]]\nname = \"ab\"\nhistroy_size = 1\nslow_consumer = \"drop\"\n",
        );
        let found = mistakes(&sources(Some(&file), &[]));
        let expected = [
            "config file FILE: line 1: max-conections: there is no such key; did you mean max-connections?",
            "config file FILE: line 2: listen: `nowhere`: the port is missing",
            "config file FILE: line 4: client.insecure: write true or false",
            "config file FILE: line 8: channel.namespaces[0].histroy_size: there is no such key; did you mean history_size?",
            "config file FILE: line 9: channel.namespaces[0].slow_consumer: `drop`: choose",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
    }

    #[test]
    fn a_name_where_nothing_has_one_is_followed_by_no_other_mistake() {
        let file = File::new("name", "name = \"a\"\n[client]\nname = \"b\"\n");
        let found = mistakes(&sources(Some(&file), &[]));
        let [top, client] = &found[..] else {
            panic!("{found:#?}");
        };
        assert!(top.starts_with("config file FILE: line 1: name: there is no such key"));
        assert!(client.starts_with("config file FILE: line 3: client.name: there is no such key"));
    }

    #[test]
    fn a_file_in_another_language_is_told_so() {
        let json = File::new("json", " {\n  \"client\": {}\n}\n");
        let found = mistakes(&sources(Some(&json), &[]));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("config file FILE: it is JSON, and TOML is wanted: "),
            "{found:?}"
        );
    }

    /// One key of each table of Centrifugo's default file that is not here, or has another form here.
    #[test]
    fn keys_of_centrifugo_have_a_counterpart_or_a_reason() {
        let file = File::new(
            "centrifugo",
            "consumers = []\npid_file = \"\"\nenable_unreleased_features = false\n[http_server]\nport = 8000\n\
             [log]\nlevel = \"info\"\n[engine]\ntype = \"memory\"\n[broker]\nenabled = false\n[presence_manager]\n[map_broker]\n\
             [controller]\n[shared_poll]\n[client]\nqueue_max_size = 5\nconcurrency = 0\n\
             [client.token]\ninsecure_skip_jwks_endpoint_safety_check = false\n\
             [client.proxy.connect]\ngrpc_metadata = []\n[client.proxy.connect.grpc]\n[channel]\nprivate_prefix = \"$\"\n\
             [channel.proxy.map_publish]\n[channel.without_namespace]\nsubscription_type = \"\"\n\
             subscribe_stream_proxy_enabled = false\n[channel.without_namespace.map]\n[rpc]\nnamespace_boundary = \":\"\n\
             [http_api]\ndisabled = false\nexternal = false\n[grpc_api]\n[websocket]\n[sse]\nhandler_prefix = \"\"\n\
             [uni_websocket]\ncompression = false\n[webtransport]\n[uni_grpc]\n[emulation]\n[admin]\n[prometheus]\n[health]\n[swagger]\n\
             [debug]\n[init]\n[opentelemetry]\n[graphite]\n[usage_stats]\n[node]\n[shutdown]\n",
        );
        let found = mistakes(&sources(Some(&file), &[]));
        assert_eq!(found.len(), 42, "{found:#?}");
        for mistake in &found {
            assert!(!mistake.ends_with("there is no such key"), "{mistake}");
            assert!(!mistake.contains("invalid type"), "{mistake}");
        }
    }

    #[test]
    fn a_key_that_does_not_exist_hides_no_other_mistake() {
        let file = File::new(
            "both",
            "shards = 0\nmax-conections = 5\n[client]\nchannel_limit = 999\ninsecure = 3\n",
        );
        let variables = [("MYRIAD_DRAIN", "soon"), ("MYRIAD_SEND_BUFFER_BYTES", "1")];
        let found = mistakes(&sources(Some(&file), &variables));
        for expected in [
            "config file FILE: line 2: max-conections: there is no such key",
            "config file FILE: line 5: client.insecure: write true or false",
            "variable MYRIAD_DRAIN = soon: ",
            "config file FILE: line 1: shards = 0: choose 1 to 256",
            "config file FILE: line 4: client.channel_limit = 999: choose 1 to 255",
            "variable MYRIAD_SEND_BUFFER_BYTES = 1B: choose",
        ] {
            let is_named = found.iter().any(|found| found.starts_with(expected));
            assert!(is_named, "{expected}: {found:#?}");
        }
        assert_eq!(found.len(), 6, "{found:#?}");
    }

    #[test]
    fn a_value_that_is_missing_beside_variables_names_its_own_variable() {
        for (variables, expected) in [
            (
                vec![
                    ("MYRIAD_WEBHOOKS_ENDPOINTS", "app"),
                    ("MYRIAD_WEBHOOKS_ENDPOINTS_APP_BATCH_SIZE", "5"),
                ],
                "variable MYRIAD_WEBHOOKS_ENDPOINTS_APP_URL = ",
            ),
            (
                vec![
                    ("MYRIAD_CHANNEL_NAMESPACES", "my-chat"),
                    ("MYRIAD_CHANNEL_NAMESPACES_MY_CHAT_HISTORY_SIZE", "5"),
                ],
                "variable MYRIAD_CHANNEL_NAMESPACES_MY_CHAT_HISTORY_SIZE = 5: write history_ttl too",
            ),
        ] {
            let found = mistakes(&sources(None, &variables));
            assert!(found[0].starts_with(expected), "{found:#?}");
        }
    }

    #[test]
    fn the_format_of_the_log_is_known_although_options_cannot_be_used() {
        let json = "log-format = \"json\"\nno-such-key = 1\nshards = 0";
        let file = File::new("format", json);
        assert_eq!(sources(Some(&file), &[]).log_format(), LogFormat::Json);
        let variable = sources(None, &[("MYRIAD_LOG_FORMAT", "json"), ("MYRIAD_DEV", "?")]);
        assert_eq!(variable.log_format(), LogFormat::Json);
        let broken = File::new("broken", "log-format = ");
        let mut sources = sources(Some(&broken), &[]);
        assert_eq!(sources.log_format(), LogFormat::Text);
        sources.flags.log_format = Some(LogFormat::Json);
        assert_eq!(sources.log_format(), LogFormat::Json);
    }

    #[test]
    fn every_value_that_cannot_be_meant_is_named() {
        let file = File::new(
            "values",
            "shards = 0\ndrain = \"721h\"\n\n[client]\nchannel_limit = 999\n[[channel.namespaces]]\nname = \"a b\"\n\
             [[channel.namespaces]]\nname = \"ok\"\nhistory_size = 5\n",
        );
        let found = mistakes(&sources(Some(&file), &[("MYRIAD_SEND_BUFFER_BYTES", "1")]));
        for expected in [
            "config file FILE: line 1: shards = 0: choose 1 to 256",
            "config file FILE: line 2: drain = 721h: choose 720h or less",
            "config file FILE: line 5: client.channel_limit = 999: choose 1 to 255",
            "config file FILE: line 7: channel.namespaces[0].name = \"a b\": choose",
            "config file FILE: line 10: namespace \"ok\": channel.namespaces[1].history_size = 5: write history_ttl too",
            "variable MYRIAD_SEND_BUFFER_BYTES = 1B: choose 4KiB to 1GiB",
        ] {
            let is_named = found.iter().any(|found| found.starts_with(expected));
            assert!(is_named, "{expected}: {found:#?}");
        }
        assert_eq!(found.len(), 6, "{found:#?}");
    }

    #[test]
    fn flags_stand_over_variables_and_variables_over_the_file() {
        let file = File::new(
            "order",
            "listen = 8001\nmax-connections = 10\nmessage-bytes-max = 10\n[client]\nchannel_limit = 10\nstale_close_delay = \"1s\"",
        );
        let mut sources = sources(
            Some(&file),
            &[
                ("MYRIAD_LISTEN", ":8002"),
                ("MYRIAD_MAX_CONNECTIONS", "20"),
                ("MYRIAD_CLIENT_CHANNEL_LIMIT", "20"),
                ("MYRIAD_MESSAGE_BYTES_MAX", ""),
                ("CENTRIFUGO_CLIENT_CHANNEL_LIMIT", "30"),
            ],
        );
        sources.flags.listen = Some(SocketAddr::from(([127, 0, 0, 1], 8003)));
        sources.flags_given = vec!["listen".into()];
        let config = sources.resolve(&MACHINE).unwrap();
        assert_eq!(config.listen.port(), 8003);
        assert_eq!(config.max_connections, 20);
        assert_eq!(config.settings.message_bytes_max, 10);
        assert_eq!(config.settings.subscriptions_max, 20);
        assert_eq!(config.settings.client.stale_close_delay.as_secs(), 1);
        sources.variables.remove(2);
        assert_eq!(
            sources
                .resolve(&MACHINE)
                .unwrap()
                .settings
                .subscriptions_max,
            10
        );
        sources.centrifugo = true;
        assert_eq!(
            sources
                .resolve(&MACHINE)
                .unwrap()
                .settings
                .subscriptions_max,
            30
        );
    }

    #[test]
    fn variables_of_centrifugo_that_are_not_read_are_remarked_on() {
        let mut sources = sources(
            None,
            &[
                ("CENTRIFUGO_CLIENT_CHANNEL_LIMIT", "30"),
                ("CENTRIFUGO_HTTP_API_KEY", "k"),
                // Of Kubernetes, for a service of this name.
                ("CENTRIFUGO_SERVICE_HOST", "10.0.0.1"),
                ("CENTRIFUGO_PORT", "tcp://10.0.0.1:8000"),
            ],
        );
        let remarked = |sources: &Sources| {
            let remarks = sources.resolve(&MACHINE).unwrap().remarks;
            let of_variables = |remark: &&String| remark.contains("--centrifugo-env");
            remarks.iter().find(of_variables).cloned()
        };
        let remark = remarked(&sources).expect("a remark");
        let expected = "(there are 2, such as CENTRIFUGO_CLIENT_CHANNEL_LIMIT)";
        assert!(remark.contains(expected), "{remark}");
        sources.centrifugo = true;
        assert_eq!(remarked(&sources), None);
    }

    #[test]
    fn a_flag_that_is_at_fault_is_named_as_a_flag() {
        let mut sources = sources(None, &[("MYRIAD_SHARDS", "2")]);
        sources.flags.shards = Some(0);
        sources.flags_given = vec!["shards".into()];
        assert_eq!(mistakes(&sources), ["--shards = 0: choose 1 to 256"]);
    }

    #[test]
    fn a_mistake_in_tls_is_followed_by_none_that_is_no_mistake() {
        let file = File::new(
            "tls",
            "shards = 0\ntls-certificate = \"/nowhere.pem\"\ntls-key = \"/nowhere.key\"\n",
        );
        let address: SocketAddr = "127.0.0.1:8443".parse().unwrap();
        let mut sources = sources(Some(&file), &[]);
        sources.flags.tls_listen = Some(address);
        sources.flags_given = vec!["tls-listen".into()];
        let found = mistakes(&sources);
        assert_eq!(found.len(), 3, "{found:#?}");
        for field in ["line 2: tls-certificate", "line 3: tls-key", "shards"] {
            let is_named = found.iter().any(|mistake| mistake.contains(field));
            assert!(is_named, "{field}: {found:#?}");
        }
        // An option that cannot be read, in another place than those that need it.
        sources.variables = vec![("MYRIAD_TLS_CLIENT_CA".into(), "/nowhere".into())];
        sources
            .variables
            .push(("MYRIAD_TLS_ACME_HTTP".into(), ":99999".into()));
        let found = mistakes(&sources);
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].contains("TLS_ACME_HTTP"), "{found:#?}");
        // Where everything stands on the command line, nothing is left in the file to take away.
        sources.file = None;
        sources.flags.tls_certificate = Some("/nowhere.pem".into());
        sources.flags.tls_key = Some("/nowhere.key".into());
        let flags = ["tls-listen", "tls-certificate", "tls-key"];
        sources.flags_given = flags.map(String::from).to_vec();
        sources.variables = vec![("MYRIAD_SHARDS".into(), "0".into())];
        let found = mistakes(&sources);
        assert_eq!(found.len(), 3, "{found:#?}");
        for field in ["--tls-certificate", "--tls-key", "SHARDS"] {
            assert!(
                found.iter().any(|mistake| mistake.contains(field)),
                "{found:#?}"
            );
        }
    }

    #[test]
    fn every_mistake_of_tls_is_named() {
        let file = File::new(
            "tls-all",
            "shards = 0\ntls-listen = \"127.0.0.1:8443\"\ntls-certificate = \"/nowhere.pem\"\ntls-key = \"/nowhere.key\"\n\
             tls-client-ca = \"/nowhere/ca\"\ntls-client-auth = \"maybe\"\ntls-client-user = \"nobody\"\ntls-min-version = \"1.1\"\n\
             tls-ticket-keys = \"/nowhere/tickets\"\ntls-acme = [\"*.a.example\"]\ntls-acme-email = \"nobody\"\n\
             tls-acme-directory = \"ftp://a.example\"\ntls-acme-http = \"127.0.0.1:8443\"\n\
             [[tls.certificates]]\ncertificate = \"/nowhere/a\"\nkey = \"/nowhere/b\"\n",
        );
        let found = mistakes(&sources(Some(&file), &[]));
        for expected in [
            "line 1: shards = 0",
            "line 3: tls-certificate = ",
            "line 4: tls-key = ",
            "line 5: tls-client-ca = ",
            "line 6: tls-client-auth = ",
            "line 7: tls-client-user = ",
            "line 8: tls-min-version = ",
            "line 9: tls-ticket-keys = ",
            "line 10: tls-acme = \"*.a.example\": an authority makes",
            "line 10: tls-acme = [\"*.a.example\"]: needs tls-acme-accept-terms",
            "line 11: tls-acme-email = ",
            "line 12: tls-acme-directory = ",
            "line 13: tls-acme-http = ",
            "line 15: tls.certificates[0].certificate = ",
            "line 16: tls.certificates[0].key = ",
        ] {
            let is_named = found.iter().any(|found| found.contains(expected));
            assert!(is_named, "{expected}: {found:#?}");
        }
        assert_eq!(found.len(), 15, "{found:#?}");
    }

    #[test]
    fn a_pair_in_a_variable_is_named_by_its_place() {
        let pairs = r#"{"certificates": [{"certificate": "/nowhere/a", "key": "/nowhere/b"}, {"certificate": "/nowhere/c", "key": "/nowhere/d"}]}"#;
        let variables = [("MYRIAD_TLS_LISTEN", ":8443"), ("MYRIAD_TLS", pairs)];
        let found = mistakes(&sources(None, &variables));
        for (place, path) in [
            ("certificates[0].certificate", "/nowhere/a"),
            ("certificates[0].key", "/nowhere/b"),
            ("certificates[1].certificate", "/nowhere/c"),
            ("certificates[1].key", "/nowhere/d"),
        ] {
            let expected = format!("variable MYRIAD_TLS: {place} = {path:?}: ");
            let is_named = found.iter().any(|found| found.starts_with(&expected));
            assert!(is_named, "{expected}: {found:#?}");
        }
        assert_eq!(found.len(), 4, "{found:#?}");
    }
}
