//! The JetStream stream of a log: how it is made, and what is demanded of one that is there.

use super::link::{BrokerError, Log, NoStreamCause};
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Republish, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{Context, ErrorCode};
use myriad_broker::Subjects;
use std::collections::HashMap;
use std::time::Duration;

/// A stream of ours.
pub(super) type LogStream = Stream;

/// A message id is remembered so long: two publications with one idempotency key, or one that is sent again, are one within it.
pub(super) const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// Where a stream says in how many streams its namespace is.
const PARTITIONS: &str = "myriad_partitions";
/// A message stays longer in the stream than in histories, so that a home knows what it has dropped itself.
const SPARE_AGE: Duration = Duration::from_secs(300);

/// The stream of a log: made if it is missing, and widened if it keeps too little. What an operator has set beyond that stays.
///
/// # Errors
/// It cannot be made, or is none of ours.
pub(super) async fn ensure(
    context: &Context,
    subjects: &Subjects,
    log: &Log,
    replicas: usize,
) -> Result<LogStream, BrokerError> {
    let wanted = Config {
        republish: log.needs_republish().then(|| Republish {
            source: subjects.stored_of(&log.class),
            destination: subjects.republished_of(&log.class),
            headers_only: false,
        }),
        ..config(subjects, log, replicas)
    };
    let name = wanted.name.clone();
    let failed = |why: String| BrokerError::Stream {
        stream: name.clone(),
        why,
    };
    let not_now = |why: &dyn std::fmt::Display, cause| BrokerError::NoStream {
        stream: name.clone(),
        why: why.to_string(),
        cause,
        replicas,
    };
    let made = context.get_or_create_stream(&wanted).await;
    let stream = made.map_err(|error| match error.kind() {
        CreateStreamErrorKind::JetStream(said)
            if said.error_code() == ErrorCode::STREAM_SUBJECT_OVERLAP =>
        {
            failed(
                "cannot be made, because another stream has its subjects: the namespace had another number of streams before; set broker-partitions back, or choose another broker-prefix, or delete the streams of the namespace with their histories"
                    .to_owned(),
            )
        }
        kind => not_now(&error, cause_of(&kind)),
    })?;
    let found = &stream.cached_info().config;
    if let Some(why) = differs(found, &wanted) {
        return Err(failed(why));
    }
    let Some(widened) = widened(found, &wanted) else {
        return Ok(stream);
    };
    match &widened.republish {
        Some(way) if found.republish.is_none() => tracing::info!(
            "this node makes stream {name} republish, from {} to {}",
            way.source,
            way.destination
        ),
        _ => tracing::info!("this node makes stream {name} keep more, as its options ask for"),
    }
    context
        .update_stream(&widened)
        .await
        .map_err(|error| match error.kind() {
            // Servers that have just started have no leader that would answer.
            CreateStreamErrorKind::TimedOut => not_now(&error, NoStreamCause::NoLeader),
            CreateStreamErrorKind::JetStream(said) if said.code() >= 500 => {
                not_now(&error, cause_of(&CreateStreamErrorKind::JetStream(said)))
            }
            _ => failed(format!("cannot be changed: {error}")),
        })?;
    let stream = context.get_stream(&name).await;
    stream.map_err(|error| not_now(&error, NoStreamCause::NoLeader))
}

/// What it means that a stream cannot be made.
fn cause_of(kind: &CreateStreamErrorKind) -> NoStreamCause {
    match kind {
        CreateStreamErrorKind::TimedOut | CreateStreamErrorKind::JetStreamUnavailable => {
            NoStreamCause::NoLeader
        }
        CreateStreamErrorKind::JetStream(said) => {
            cause_of_error(said.error_code(), &said.to_string())
        }
        _ => NoStreamCause::Other,
    }
}

/// The servers say also by `no suitable peers` that disks are full, and then why in words.
fn cause_of_error(code: ErrorCode, text: &str) -> NoStreamCause {
    let has = |word| text.to_ascii_lowercase().contains(word);
    match code {
        ErrorCode::STORAGE_RESOURCES_EXCEEDED | ErrorCode::INSUFFICIENT_RESOURCES => {
            NoStreamCause::NoRoom
        }
        _ if has("insufficient storage") || has("no space left") => NoStreamCause::NoRoom,
        ErrorCode::CLUSTER_NO_PEERS
        | ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED
        | ErrorCode::CLUSTER_INCOMPLETE => NoStreamCause::TooFewServers,
        ErrorCode::CLUSTER_NOT_AVAILABLE
        | ErrorCode::CLUSTER_NOT_LEADER
        | ErrorCode::CLUSTER_NOT_ACTIVE => NoStreamCause::NoLeader,
        _ => NoStreamCause::Other,
    }
}

/// Why a stream that is there is none of ours, or cannot be used, and what to do.
fn differs(found: &Config, wanted: &Config) -> Option<String> {
    let partitions = partitions_of(found);
    if partitions != partitions_of(wanted) {
        return Some(format!(
            "is one of {partitions} of its namespace; all nodes need broker-partitions = {partitions}, or another broker-prefix"
        ));
    }
    if found.storage != StorageType::File {
        return Some(
            "is in memory, where limits for each channel slow it to a few hundred messages a second; delete it, and it is made on file"
                .to_owned(),
        );
    }
    if found.subjects != wanted.subjects {
        return Some(format!(
            "has other subjects ({}); choose another broker-prefix",
            found.subjects.join(", ")
        ));
    }
    let name = &wanted.name;
    if let (Some(found), Some(wanted)) = (&found.republish, &wanted.republish)
        && !is_same_way(found, wanted)
    {
        let what = if found.headers_only {
            "only the headers of its messages"
        } else {
            "its messages"
        };
        return Some(format!(
            "republishes {what} from {} to {}: run nats stream edit --no-republish {name}, and this node sets what it needs when it tries again, \
             or set broker-interest = stream",
            found.source, found.destination
        ));
    }
    breaks_promises(found).map(str::to_owned)
}

fn config(subjects: &Subjects, log: &Log, replicas: usize) -> Config {
    let age = log.options.history_ttl;
    let partitions = log.options.logs.map_or(1, |logs| logs.count);
    Config {
        name: subjects.stream(&log.class),
        description: Some("publications of channels with history".to_owned()),
        subjects: vec![subjects.stored_of(&log.class)],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        storage: StorageType::File,
        num_replicas: replicas,
        max_messages: -1,
        max_bytes: -1,
        max_consumers: -1,
        max_messages_per_subject: i64::try_from(log.kept_min()).unwrap_or(i64::MAX),
        max_age: age + age / 2 + SPARE_AGE,
        duplicate_window: DUPLICATE_WINDOW,
        allow_direct: true,
        // What removes a channel's history.
        allow_rollup: true,
        metadata: HashMap::from([(PARTITIONS.to_owned(), partitions.to_string())]),
        // What was deleted in the middle would be a gap that a node cannot see that starts later.
        deny_delete: true,
        ..Config::default()
    }
}

/// Whether a stream republishes what a node by channel hears.
fn is_same_way(found: &Republish, wanted: &Republish) -> bool {
    found.source == wanted.source && found.destination == wanted.destination && !found.headers_only
}

/// In how many streams the channels of a stream's namespace are. Whoever disagrees would look for them elsewhere.
fn partitions_of(config: &Config) -> String {
    let written = config.metadata.get(PARTITIONS).cloned();
    written.unwrap_or_else(|| "1".to_owned())
}

/// Why a stream that is there cannot be used, and what to do.
fn breaks_promises(found: &Config) -> Option<&'static str> {
    if found.sealed {
        Some("is sealed, so that nothing can be published; delete it, and it is made anew")
    } else if found.no_ack {
        Some("acknowledges nothing; set no_ack to false")
    } else if found.retention != RetentionPolicy::Limits {
        Some("drops what was read; delete it, and it is made with the retention limits")
    } else if found.discard != DiscardPolicy::Old {
        Some("refuses publications when it is full; set discard to old")
    } else {
        None
    }
}

/// What is found, with what is wanted beyond it; none if it keeps enough.
fn widened(found: &Config, wanted: &Config) -> Option<Config> {
    // Zero and less are no limit.
    let keeps = |found: i64, wanted: i64| found <= 0 || found >= wanted;
    let keeps_enough = keeps(
        found.max_messages_per_subject,
        wanted.max_messages_per_subject,
    );
    let keeps_long = found.max_age.is_zero() || found.max_age >= wanted.max_age;
    let knows_keys = found.duplicate_window >= wanted.duplicate_window;
    let republishes = found.republish.is_some() || wanted.republish.is_none();
    if keeps_enough && keeps_long && knows_keys && found.allow_rollup && republishes {
        return None;
    }
    let mut widened = found.clone();
    if !republishes {
        widened.republish.clone_from(&wanted.republish);
    }
    if !keeps_enough {
        widened.max_messages_per_subject = wanted.max_messages_per_subject;
    }
    if !keeps_long {
        widened.max_age = wanted.max_age;
    }
    if !knows_keys {
        widened.duplicate_window = wanted.duplicate_window;
    }
    widened.allow_rollup = true;
    Some(widened)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeping(messages: i64, seconds: u64) -> Config {
        Config {
            max_messages_per_subject: messages,
            max_age: Duration::from_secs(seconds),
            allow_rollup: true,
            ..Config::default()
        }
    }

    #[test]
    fn a_stream_is_widened_and_never_narrowed() {
        let wanted = keeping(10, 60);
        for (found, widened_to) in [
            ((10, 60), None),
            ((11, 61), None),
            ((-1, 0), None),
            ((9, 60), Some((10, 60))),
            ((20, 59), Some((20, 60))),
            ((-1, 59), Some((-1, 60))),
        ] {
            let widened = widened(&keeping(found.0, found.1), &wanted);
            let limits =
                widened.map(|config| (config.max_messages_per_subject, config.max_age.as_secs()));
            assert_eq!(limits, widened_to, "{found:?}");
        }
    }

    #[test]
    fn a_stream_says_in_how_many_its_namespace_is() {
        let mut config = keeping(1, 1);
        assert_eq!(partitions_of(&config), "1");
        let written = (PARTITIONS.to_owned(), "8".to_owned());
        config.metadata = HashMap::from([written]);
        assert_eq!(partitions_of(&config), "8");
    }

    /// What a server says when it cannot make a stream, as JSON of its API.
    fn said(code: u64, error_code: u64, description: &str) -> NoStreamCause {
        let error = serde_json::json!({
            "code": code, "err_code": error_code, "description": description,
        });
        let error: async_nats::jetstream::Error =
            serde_json::from_value(error).expect("an error of JetStream");
        cause_of(&CreateStreamErrorKind::JetStream(error))
    }

    /// Codes and texts of nats-server 2.12: server/errors.json.
    #[test]
    fn what_a_server_says_tells_the_true_cause() {
        use NoStreamCause::{NoLeader, NoRoom, Other, TooFewServers};
        for (code, error_code, description, cause) in [
            (
                503,
                10_008,
                "JetStream system temporarily unavailable",
                NoLeader,
            ),
            (
                500,
                10_009,
                "JetStream cluster can not handle request",
                NoLeader,
            ),
            (500, 10_006, "JetStream not in clustered mode", NoLeader),
            (
                400,
                10_005,
                "no suitable peers for placement",
                TooFewServers,
            ),
            (
                500,
                10_074,
                "replicas > 1 not supported in non-clustered mode",
                TooFewServers,
            ),
            (503, 10_004, "incomplete results", TooFewServers),
            (
                400,
                10_005,
                "no suitable peers for placement, insufficient storage",
                NoRoom,
            ),
            (
                500,
                10_047,
                "insufficient storage resources available",
                NoRoom,
            ),
            (503, 10_023, "insufficient resources", NoRoom),
            (
                500,
                10_049,
                "write /data/1.blk: no space left on device",
                NoRoom,
            ),
            (400, 10_025, "invalid JSON", Other),
        ] {
            assert_eq!(said(code, error_code, description), cause, "{error_code}");
        }
        assert_eq!(cause_of(&CreateStreamErrorKind::TimedOut), NoLeader);
        assert_eq!(
            cause_of(&CreateStreamErrorKind::JetStreamUnavailable),
            NoLeader
        );
        assert_eq!(cause_of(&CreateStreamErrorKind::EmptyStreamName), Other);
    }

    #[test]
    fn each_cause_has_its_next_step() {
        let said = |cause| {
            let error = BrokerError::NoStream {
                stream: "MYRIAD_h".to_owned(),
                why: "what JetStream says".to_owned(),
                cause,
                replicas: 3,
            };
            error.to_string()
        };
        for (cause, step) in [
            (
                NoStreamCause::NoLeader,
                "JetStream has no leader now: more than half of its servers",
            ),
            (
                NoStreamCause::TooFewServers,
                "with broker-replicas = 3 the NATS cluster needs as many",
            ),
            (NoStreamCause::NoRoom, "look at their disks"),
            (NoStreamCause::Other, "look at the log of the NATS servers"),
        ] {
            let text = said(cause);
            assert!(
                text.starts_with("stream MYRIAD_h cannot be made: what JetStream says; "),
                "{text}"
            );
            assert!(text.contains(step), "{text}");
        }
    }

    #[test]
    fn a_stream_that_breaks_a_promise_is_refused_or_changed() {
        let good = keeping(10, 60);
        assert_eq!(breaks_promises(&good), None);
        for bad in [
            Config {
                sealed: true,
                ..good.clone()
            },
            Config {
                no_ack: true,
                ..good.clone()
            },
            Config {
                retention: RetentionPolicy::Interest,
                ..good.clone()
            },
            Config {
                discard: DiscardPolicy::New,
                ..good.clone()
            },
        ] {
            assert!(breaks_promises(&bad).is_some(), "{bad:?}");
        }
        let wanted = Config {
            duplicate_window: DUPLICATE_WINDOW,
            ..good.clone()
        };
        let widened = widened(&good, &wanted).expect("keys are forgotten too early");
        assert_eq!(widened.duplicate_window, DUPLICATE_WINDOW);
    }

    #[test]
    fn a_stream_that_republishes_in_another_way_says_what_to_do() {
        let way = |destination: &str, headers_only| Config {
            republish: Some(Republish {
                source: "my.h.~.>".to_owned(),
                destination: destination.to_owned(),
                headers_only,
            }),
            ..keeping(10, 60)
        };
        let wanted = way("my.r.~.>", false);
        assert_eq!(differs(&wanted, &wanted), None);
        assert_eq!(differs(&keeping(10, 60), &wanted), None, "it is added");
        assert_eq!(
            differs(&way("other.>", false), &keeping(10, 60)),
            None,
            "a node that reads the stream whole does not need it"
        );
        for (found, words) in [
            (
                way("other.>", false),
                "its messages from my.h.~.> to other.>:",
            ),
            (way("my.r.~.>", true), "only the headers"),
        ] {
            let why = differs(&found, &wanted).expect("it is another way");
            assert!(why.contains(words), "{why}");
            assert!(why.contains("run nats stream edit --no-republish"), "{why}");
        }
    }
}
