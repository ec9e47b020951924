//! The broker of a cluster, from its options.

use super::options::Options;
use super::{ConfigError, refuse};
use crate::broker::{BROKER_PREFIX_DEFAULT, BrokerInterest, BrokerSettings};
use myriad_broker::{Policy, Subjects};
use myriad_nats::Nats;
use myriad_shard::Namespaces;
use myriad_units::option::Count;

/// JetStream keeps a message on so many servers at most.
const REPLICAS_MAX: u64 = 5;
/// Streams of a namespace.
const PARTITIONS_MAX: u64 = 64;
/// Publications a second from which on hearing single channels may pay (ADR 26).
const AUTO_RATE_DEFAULT: u64 = 20_000;
/// Streams of all namespaces: each is read by a consumer of each node.
const STREAMS_MAX: usize = 1_000;

impl Options {
    /// # Errors
    /// The first value that cannot be used.
    pub(super) fn broker(&self) -> Result<Option<BrokerSettings>, ConfigError> {
        let Some(url) = &self.broker else {
            self.check_storage()?;
            self.interest()?;
            return Ok(None);
        };
        let identity = match (&self.broker_certificate, &self.broker_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            (Some(certificate), None) => {
                let advice = "needs broker-key, the file with its key";
                return Err(refuse("broker-certificate", certificate.display(), advice));
            }
            (None, Some(key)) => {
                let advice = "needs broker-certificate, the file with the certificate";
                return Err(refuse("broker-key", key.display(), advice));
            }
        };
        let nats = Nats {
            url: url.clone(),
            credentials: self.broker_credentials.clone(),
            ca: self.broker_ca.clone(),
            identity,
            ..Nats::default()
        };
        nats.check()
            .map_err(|error| refuse("broker", nats.shown(), error.to_string()))?;
        let prefix = self.broker_prefix.as_deref();
        let prefix = prefix.unwrap_or(BROKER_PREFIX_DEFAULT);
        let subjects = Subjects::new(prefix)
            .map_err(|error| refuse("broker-prefix", format!("{prefix:?}"), error.to_string()))?;
        self.check_storage()?;
        let Count(replicas) = self.broker_replicas.unwrap_or(Count(1));
        if !(1..=REPLICAS_MAX).contains(&replicas) {
            let advice = "choose 1 to 5; 3 where the NATS cluster has three servers or more";
            return Err(refuse("broker-replicas", replicas, advice));
        }
        let replicas = usize::try_from(replicas).expect("at most 5");
        Ok(Some(BrokerSettings {
            nats,
            subjects,
            replicas,
            interest: self.interest()?,
        }))
    }

    /// Streams of each namespace with history.
    ///
    /// # Errors
    /// None, or too many.
    pub(super) fn partitions(&self, namespaces: &Namespaces) -> Result<u16, ConfigError> {
        let Count(partitions) = self.broker_partitions.unwrap_or(Count(1));
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            let advice = "choose 1 to 64; more than the NATS servers have cores is seldom of use";
            return Err(refuse("broker-partitions", partitions, advice));
        }
        let count = u16::try_from(partitions).expect("at most 64");
        let with_history = namespaces.with_history();
        let streams = with_history * usize::from(count);
        if streams > STREAMS_MAX {
            let advice = format!(
                "{with_history} namespaces with history have {streams} streams then; choose fewer, so that there are no more than {STREAMS_MAX}"
            );
            return Err(refuse("broker-partitions", partitions, advice));
        }
        Ok(count)
    }

    /// What this node hears.
    ///
    /// # Errors
    /// The word is not one of the three, or the rate is 0.
    fn interest(&self) -> Result<BrokerInterest, ConfigError> {
        let Count(rate) = self.broker_auto_rate.unwrap_or(Count(AUTO_RATE_DEFAULT));
        if rate == 0 {
            let advice = "choose 1 or more: publications a second from which on hearing single channels may pay";
            return Err(refuse("broker-auto-rate", rate, advice));
        }
        match self.broker_interest.as_deref() {
            None | Some("stream") => Ok(BrokerInterest::Stream),
            Some("channel") => Ok(BrokerInterest::Channel),
            Some("auto") => Ok(BrokerInterest::Auto(Policy::new(rate))),
            Some(other) => {
                let advice = "choose stream, channel, or auto";
                Err(refuse("broker-interest", other, advice))
            }
        }
    }

    /// Options of a broker without one: somebody may believe that there is a cluster.
    pub(super) fn broker_remarks(&self) -> Vec<String> {
        let prefix = self.broker_prefix.as_deref();
        let written = [
            (
                "broker-prefix",
                prefix.is_some_and(|prefix| prefix != BROKER_PREFIX_DEFAULT),
            ),
            (
                "broker-replicas",
                self.broker_replicas.is_some_and(|replicas| replicas.0 != 1),
            ),
            (
                "broker-partitions",
                self.broker_partitions.is_some_and(|count| count.0 != 1),
            ),
            (
                "broker-interest",
                self.broker_interest
                    .as_deref()
                    .is_some_and(|word| word != "stream"),
            ),
            (
                "broker-auto-rate",
                self.broker_auto_rate
                    .is_some_and(|rate| rate.0 != AUTO_RATE_DEFAULT),
            ),
            ("broker-credentials", self.broker_credentials.is_some()),
            ("broker-ca", self.broker_ca.is_some()),
            ("broker-certificate", self.broker_certificate.is_some()),
            ("broker-key", self.broker_key.is_some()),
        ];
        let is_alone = self.broker.is_none();
        let useless = written
            .into_iter()
            .filter(|(_, is_written)| is_alone && *is_written);
        let useless = useless.map(|(name, _)| {
            format!("{name} is of no use without broker, such as nats://127.0.0.1:4222: this node is alone")
        });
        let is_auto = self.broker_interest.as_deref() == Some("auto");
        let rate = self.broker_auto_rate.filter(|_| !is_alone && !is_auto);
        let rate = rate.filter(|rate| rate.0 != AUTO_RATE_DEFAULT);
        let without_auto =
            rate.map(|_| "broker-auto-rate is of no use without broker-interest = auto".to_owned());
        useless.chain(without_auto).collect()
    }

    fn check_storage(&self) -> Result<(), ConfigError> {
        match self.broker_storage.as_deref() {
            None | Some("file") => Ok(()),
            Some("memory") => Err(refuse(
                "broker-storage",
                "memory",
                "choose file: in memory JetStream slows to a few hundred messages a second once channels reach their limits, and a restart of all its servers loses everything; a file system in memory is as fast",
            )),
            Some(other) => Err(refuse("broker-storage", other, "choose file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn resolved(text: &str) -> Result<Option<BrokerSettings>, String> {
        let options: Options = toml::from_str(text).unwrap();
        let resolved = options.resolve(&Machine::here());
        resolved
            .map(|config| config.broker)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_broker_is_resolved_with_its_defaults() {
        assert_eq!(resolved(""), Ok(None));
        let broker = resolved("broker = \"nats://a:4222,nats://b\"")
            .unwrap()
            .unwrap();
        assert_eq!(broker.replicas, 1);
        assert_eq!(broker.subjects, Subjects::new("myriad").unwrap());
        let broker = resolved(
            "broker = \"tls://a\"\nbroker-prefix = \"eu\"\nbroker-replicas = 3\nbroker-storage = \"file\"",
        );
        let broker = broker.unwrap().unwrap();
        assert_eq!(broker.replicas, 3);
        assert_eq!(broker.interest, BrokerInterest::Stream);
        let broker = resolved("broker = \"a\"\nbroker-interest = \"auto\"\nbroker-auto-rate = 500");
        let policy = Policy::new(500);
        assert_eq!(
            broker.unwrap().unwrap().interest,
            BrokerInterest::Auto(policy)
        );
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        for (text, part) in [
            ("broker = \"nats://u:secret@\"", "broker = nats://"),
            (
                "broker = \"a\"\nbroker-prefix = \"a.b\"",
                "broker-prefix = \"a.b\": choose 1 to 32",
            ),
            (
                "broker = \"a\"\nbroker-replicas = 6",
                "broker-replicas = 6: choose 1 to 5",
            ),
            (
                "broker = \"a\"\nbroker-partitions = 65",
                "broker-partitions = 65: choose 1 to 64",
            ),
            (
                "broker = \"a\"\nbroker-storage = \"memory\"",
                "broker-storage = memory: choose file",
            ),
            (
                "broker = \"a\"\nbroker-interest = \"room\"",
                "broker-interest = room: choose stream, channel, or auto",
            ),
            (
                "broker = \"a\"\nbroker-auto-rate = 0",
                "broker-auto-rate = 0: choose 1 or more",
            ),
            (
                "broker = \"a\"\nbroker-key = \"k\"",
                "broker-key = k: needs broker-certificate",
            ),
        ] {
            let refused = resolved(text).expect_err(text);
            assert!(refused.contains(part), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn options_that_are_of_no_use_are_remarked_upon() {
        for (text, remark) in [
            (
                "broker-prefix = \"eu\"",
                "broker-prefix is of no use without broker,",
            ),
            (
                "broker-auto-rate = 5",
                "broker-auto-rate is of no use without broker,",
            ),
            (
                "broker = \"a\"\nbroker-auto-rate = 5",
                "broker-auto-rate is of no use without broker-interest = auto",
            ),
        ] {
            let options: Options = toml::from_str(text).unwrap();
            let config = options.resolve(&Machine::here()).unwrap();
            let mut remarks = config.remarks.iter();
            let is_told = remarks.any(|told| told.starts_with(remark));
            assert!(is_told, "{text}: {:?}", config.remarks);
        }
    }

    #[test]
    fn each_namespace_with_history_has_a_log() {
        let text = r#"
            broker = "a"
            [[channel.namespaces]]
            name = "news"
            history_size = 10
            history_ttl = "60s"
            [[channel.namespaces]]
            name = "live"
            [[channel.namespaces]]
            name = "chat"
            history_size = 10
            history_ttl = "60s"
        "#;
        let options: Options = toml::from_str(text).unwrap();
        let config = options.resolve(&Machine::here()).unwrap();
        let namespaces = &config.settings.namespaces;
        let logs = namespaces.with_history_in_logs();
        let names: Vec<_> = logs.iter().map(|(name, _)| name.as_deref()).collect();
        assert_eq!(names, [Some("chat"), Some("news")]);
        assert_eq!(namespaces.log_count(), 2);
        let text = format!("broker-partitions = 8\n{text}");
        let options: Options = toml::from_str(&text).unwrap();
        let config = options.resolve(&Machine::here()).unwrap();
        assert_eq!(config.settings.namespaces.log_count(), 16);
    }
}
