//! Histories on the disk, from their options.

use super::options::Options;
use super::tables::Durability;
use super::{ConfigError, refuse};
use myriad_journal::SyncPolicy;
use myriad_units::option::{Size, Span};
use std::path::PathBuf;
use std::time::Duration;

/// Less would leave a segment or two.
const DISK_MAX_MIN: u64 = 256 << 20;

/// Where histories are kept, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskSettings {
    pub(crate) directory: PathBuf,
    pub(crate) sync: SyncPolicy,
    /// Bytes of the log; none: no bound.
    pub(crate) disk_max: Option<u64>,
}

impl Options {
    /// # Errors
    /// The first value that cannot be used.
    pub(super) fn disk(&self) -> Result<Option<DiskSettings>, ConfigError> {
        let sync = self.history_sync()?;
        let disk_max = match self.history_disk_max {
            Some(Size(bytes)) if bytes < DISK_MAX_MIN => {
                return Err(refuse(
                    "history-disk-max",
                    Size(bytes),
                    "choose at least 256MiB",
                ));
            }
            written => written.map(|Size(bytes)| bytes),
        };
        let Some(directory) = self.history_dir.clone() else {
            self.refuse_without_directory()?;
            return Ok(None);
        };
        if self.broker.is_some() {
            let advice = "remove it: with a broker, JetStream keeps the histories";
            return Err(refuse("history-dir", directory.display(), advice));
        }
        Ok(Some(DiskSettings {
            directory,
            sync,
            disk_max,
        }))
    }

    fn history_sync(&self) -> Result<SyncPolicy, ConfigError> {
        let written = self.history_sync.as_deref().unwrap_or("always");
        Ok(match written {
            "always" => SyncPolicy::Always,
            "never" => SyncPolicy::Never,
            time => match time.parse::<Span>() {
                Ok(Span(time)) if time > Duration::ZERO => SyncPolicy::Every(time),
                _ => {
                    let advice = "choose always, never, or a time such as 100ms";
                    return Err(refuse("history-sync", format!("{time:?}"), advice));
                }
            },
        })
    }

    /// What was written for a disk needs one.
    fn refuse_without_directory(&self) -> Result<(), ConfigError> {
        let advice = "needs history-dir, the directory in which histories are kept";
        // The default changes nothing.
        if let Some(sync) = self.history_sync.as_ref().filter(|sync| *sync != "always") {
            return Err(refuse("history-sync", format!("{sync:?}"), advice));
        }
        if let Some(max) = self.history_disk_max {
            return Err(refuse("history-disk-max", max, advice));
        }
        let Some(channel) = &self.channel else {
            return Ok(());
        };
        let named = channel.namespaces.iter().enumerate();
        let named = named.map(|(index, table)| (format!("channel.namespaces[{index}]"), table));
        let without = (
            "channel.without_namespace".to_owned(),
            &channel.without_namespace,
        );
        for (path, table) in named.chain([without]) {
            if table.history_durability == Some(Durability::Disk) {
                return Err(refuse(
                    format!("{path}.history_durability"),
                    "\"disk\"",
                    advice,
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Machine;
    use crate::config::{Config, ConfigError, Options};
    use myriad_journal::SyncPolicy;
    use std::path::Path;
    use std::time::Duration;

    fn resolve(text: &str) -> Result<Config, ConfigError> {
        Options::from_text(text, Path::new("a.toml"))?.resolve(&Machine::OF_TESTS)
    }

    #[test]
    fn a_directory_makes_histories_durable_unless_their_namespace_says_no() {
        let text = "history-dir = \"/var/lib/myriad\"\nhistory-sync = \"100ms\"\nhistory-disk-max = \"1GiB\"\n\
                    [channel.without_namespace]\nhistory_size = 1\nhistory_ttl = \"1h\"\n\
                    [[channel.namespaces]]\nname = \"gone\"\nhistory_size = 1\nhistory_ttl = \"1h\"\nhistory_durability = \"memory\"";
        let config = resolve(text).expect("a config");
        let disk = config.disk.expect("a disk");
        assert_eq!(disk.sync, SyncPolicy::Every(Duration::from_millis(100)));
        assert_eq!(disk.disk_max, Some(1 << 30));
        let namespaces = config.settings.namespaces;
        assert!(namespaces.check_name("a").expect("a name").is_durable());
        assert!(
            !namespaces
                .check_name("gone:a")
                .expect("a name")
                .is_durable()
        );
        assert_eq!(resolve("").expect("a config").disk, None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (written, refusal) in [
            ("history-sync = \"never\"", "needs history-dir"),
            ("history-disk-max = \"1GiB\"", "needs history-dir"),
            (
                "[channel.without_namespace]\nhistory_durability = \"disk\"",
                "needs history-dir",
            ),
            (
                "history-dir = \"/a\"\nhistory-sync = \"often\"",
                "choose always, never, or a time",
            ),
            (
                "history-dir = \"/a\"\nhistory-disk-max = \"1MiB\"",
                "choose at least 256MiB",
            ),
            (
                "history-dir = \"/a\"\nbroker = \"nats://localhost\"",
                "JetStream keeps the histories",
            ),
        ] {
            let error = resolve(written).expect_err(written).to_string();
            assert!(error.contains(refusal), "{error}");
        }
    }
}
