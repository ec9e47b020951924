//! Other options for a server that is running.
//!
//! A reload reads and checks everything first. A mistake leaves the server as it is. What can change then changes at once:
//! [`Control::reload`] gives the control plane its part and every shard its settings. What needs a restart stays
//! ([`Options::with_fixed_of`]).

use crate::config::{Change, Config, ConfigError, Options, StartedWith, Written};
use crate::control::Control;
use crate::machine::Machine;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Gives a running server other options. Works from any thread that shares the descriptor table in which the server was
/// started.
#[derive(Clone, Debug)]
pub struct Reloader {
    /// What the server runs with.
    running: Arc<Mutex<Config>>,
    /// What was written when it started.
    started: Arc<Written>,
    started_with: StartedWith,
    control: UnboundedSender<Reload>,
}

/// What the control plane is told.
#[derive(Debug)]
pub(crate) enum Reload {
    /// A configuration to take. It drops `_done` when it has.
    Take {
        config: Box<Config>,
        _done: SyncSender<()>,
    },
    /// A configuration with a mistake was not taken.
    Refused,
}

/// The control plane's end.
pub(crate) type Reloads = UnboundedReceiver<Reload>;

impl Reloader {
    pub(crate) fn new(config: Config) -> (Self, Reloads) {
        let (control, reloads) = unbounded_channel();
        let started = Arc::clone(&config.options.written);
        let started_with = StartedWith {
            broker: config.options.broker.is_some(),
            endpoints: !config.webhooks.endpoints.is_empty(),
        };
        let running = Arc::new(Mutex::new(config));
        let reloader = Self {
            running,
            started,
            started_with,
            control,
        };
        (reloader, reloads)
    }

    /// The machine whose facts give the defaults: as it was at the start, so that a reload does not change them.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.running().machine.clone()
    }

    fn running(&self) -> MutexGuard<'_, Config> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the server other options, and returns once the control plane has them and every shard has been sent its own. Answers
    /// what is written otherwise than before; changes that need a restart are named until there is one.
    ///
    /// # Errors
    /// The first value that cannot be used, or what would be lost. The server runs on as before.
    pub fn reload(&self, options: Options) -> Result<Vec<Change>, ConfigError> {
        self.reload_behind(options, |_| ())
    }

    /// As [`Reloader::reload`]. `first` is called before anything changes, and only if everything is right.
    pub(crate) fn reload_behind(
        &self,
        options: Options,
        first: impl FnOnce(&Config),
    ) -> Result<Vec<Change>, ConfigError> {
        // Two reloads wait for each other here, so at most one is in the channel.
        let mut running = self.running();
        let config = running.reloaded(options);
        let config = config.inspect_err(|_| self.note_refused())?;
        first(&config);
        let changes = self.changes(&config.options.written, &running.options.written);
        let remarks = config.remarks.iter();
        for remark in remarks.filter(|remark| !running.remarks.contains(remark)) {
            tracing::warn!("{remark}");
        }
        *running = config.clone();
        let (done, is_done) = sync_channel(1);
        let reload = Reload::Take {
            config: Box::new(config),
            _done: done,
        };
        if self.control.send(reload).is_ok() {
            // It fails when the sender is dropped, which is the signal.
            let _ = is_done.recv();
        }
        Ok(changes)
    }

    /// Notes a configuration that has a mistake: metrics say so.
    pub(crate) fn note_refused(&self) {
        // Without a control plane there are no metrics.
        let _ = self.control.send(Reload::Refused);
    }

    /// What is written otherwise than before.
    fn changes(&self, written: &Written, before: &Written) -> Vec<Change> {
        let since_start = written.changes_since(&self.started, self.started_with);
        let since_reload = written.changes_since(before, self.started_with);
        since_reload
            .into_iter()
            .filter(|change| !change.needs_restart)
            .chain(
                since_start
                    .into_iter()
                    .filter(|change| change.needs_restart),
            )
            .collect()
    }
}

/// Carries out reloads until nobody can ask for one.
pub(crate) async fn follow(mut reloads: Reloads, control: Arc<Control>) {
    while let Some(reload) = reloads.recv().await {
        let outcome = control.metrics.reloads();
        match reload {
            Reload::Take { config, _done } => {
                control.reload(&config);
                outcome.note(true);
            }
            Reload::Refused => outcome.note(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    const MACHINE: Machine = Machine::OF_TESTS;

    /// What is written: these namespaces, and a broker or none.
    fn options(namespaces: &str, broker: Option<&str>) -> Options {
        let mut variables = vec![(
            "MYRIAD_CHANNEL_NAMESPACES".to_owned(),
            namespaces.to_owned(),
        )];
        variables.extend(broker.map(|url| ("MYRIAD_BROKER".to_owned(), url.to_owned())));
        let sources = Sources {
            variables,
            ..Sources::default()
        };
        sources.read().unwrap()
    }

    /// A reload that brings a namespace: what the log says of it, whether that needs a restart, and whether the namespace is there.
    fn with_a_new_namespace(broker: Option<&str>) -> (String, bool, bool) {
        let config = options("old", broker).resolve(&MACHINE).unwrap();
        // Nobody follows the reload: what is told does not wait for that.
        let (reloader, _) = Reloader::new(config);
        let mut changes = reloader.reload(options("old new", broker)).unwrap();
        let Change {
            sentence,
            needs_restart,
        } = changes.remove(0);
        assert_eq!(changes, []);
        let namespaces = Arc::clone(&reloader.running().settings.namespaces);
        let is_there = namespaces.options_of("new:a").is_some();
        (sentence, needs_restart, is_there)
    }

    /// What is written: these endpoints of webhooks.
    fn endpoints(names: &str) -> Options {
        let url = |name: &str| {
            let variable = format!("MYRIAD_WEBHOOKS_ENDPOINTS_{}_URL", name.to_uppercase());
            (variable, "http://127.0.0.1:8020/".to_owned())
        };
        let mut variables: Vec<_> = names.split_whitespace().map(url).collect();
        if !variables.is_empty() {
            variables.push(("MYRIAD_WEBHOOKS_ENDPOINTS".to_owned(), names.to_owned()));
        }
        let sources = Sources {
            variables,
            ..Sources::default()
        };
        sources.read().unwrap()
    }

    #[test]
    fn only_the_first_endpoint_of_all_needs_a_restart() {
        let change = |name: &str, what: &str, needs_restart| Change {
            sentence: format!("webhooks.endpoints[{name:?}] {what}"),
            needs_restart,
        };
        let is_new = |name: &str, needs_restart| change(name, "is new", needs_restart);
        let has_gone = |name: &str| change(name, "has gone", false);
        let with_none = [
            ("a", vec![is_new("a", true)]),
            ("a b", vec![is_new("a", true), is_new("b", true)]),
            ("", vec![]),
        ];
        let with_one = [
            ("a b", vec![is_new("b", false)]),
            ("b", vec![has_gone("a")]),
            ("", vec![has_gone("b")]),
            ("c", vec![is_new("c", false)]),
        ];
        for (start, reloads) in [("", &with_none[..]), ("a", &with_one[..])] {
            let config = endpoints(start).resolve(&MACHINE).unwrap();
            let (reloader, _) = Reloader::new(config);
            for (names, told) in reloads {
                assert_eq!(&reloader.reload(endpoints(names)).unwrap(), told, "{names}");
            }
        }
    }

    /// What is written in the file.
    fn from_file(text: &str) -> Options {
        Options::from_text(text, std::path::Path::new("a.toml")).unwrap()
    }

    /// A file may be read at any moment while somebody writes it.
    #[test]
    fn no_cut_of_a_file_deletes_a_history_or_all_namespaces() {
        let whole = "[channel.without_namespace]\nhistory_ttl = \"60s\"\nhistory_size = 9\n\
                     [[channel.namespaces]]\nname = \"chat\"\nhistory_ttl = \"60s\"\nhistory_size = 9\n\
                     [[channel.namespaces]]\nname = \"plain\"\n";
        let config = from_file(whole).resolve(&MACHINE).unwrap();
        let (reloader, _) = Reloader::new(config);
        let histories = |reloader: &Reloader| reloader.running().settings.namespaces.with_history();
        for cut in 0..whole.len() {
            let Ok(options) = Options::from_text(&whole[..cut], std::path::Path::new("a.toml"))
            else {
                continue;
            };
            // What is good is the whole file without its last lines.
            let _ = reloader.reload(options);
            assert_eq!(histories(&reloader), 2, "cut at {cut}");
        }
        let refused = |text: &str| reloader.reload(from_file(text)).unwrap_err().to_string();
        assert!(refused("# soon").starts_with("config file a.toml: it is empty, "));
        assert_eq!(
            refused("[client]\n"),
            "it would delete the history of channels without a namespace, of namespace \"chat\": write \
             reload_may_remove = true under [channel] if that is meant"
        );
        let asked = "[channel]\nreload_may_remove = true\n";
        reloader.reload(from_file(asked)).unwrap();
        assert_eq!(histories(&reloader), 0);
    }

    #[test]
    fn all_namespaces_go_only_if_that_is_asked_for() {
        let one = "[[channel.namespaces]]\nname = \"plain\"\n";
        let config = from_file(one).resolve(&MACHINE).unwrap();
        let (reloader, _) = Reloader::new(config);
        let refused = reloader.reload(from_file("anonymous = true")).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("it would remove all namespaces: "),
            "{refused}"
        );
        let other = "[[channel.namespaces]]\nname = \"other\"\n";
        reloader.reload(from_file(other)).unwrap();
    }

    #[test]
    fn a_new_namespace_works_at_once() {
        let sentence = "channel.namespaces[\"new\"] is new, and works at once";
        let told = with_a_new_namespace(None);
        assert_eq!(told, (sentence.to_owned(), false, true));
    }

    #[test]
    fn a_new_namespace_of_a_cluster_needs_a_restart() {
        let sentence =
            "channel.namespaces[\"new\"] is new: all nodes need it before anybody uses it";
        let told = with_a_new_namespace(Some("nats://127.0.0.1:4222"));
        assert_eq!(told, (sentence.to_owned(), true, false));
    }
}
