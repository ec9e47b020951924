//! How runs are dealt out, and what is refused.

use super::*;
use crate::config_error::{ConfigError, ThresholdRefused};
use crate::engine::plan::Answer;
use crate::engine::thread::Tables;
use myriad_reactor::descriptor_limit;

fn config(urls: &[&str]) -> Config {
    let targets = urls.iter().map(|url| Target::parse(url).unwrap()).collect();
    Config {
        driver: Some(Driver::Epoll),
        ..Config::new(targets, 100)
    }
}

fn publish() -> Publish {
    Publish::new(
        Endpoint::parse("http://127.0.0.1:8000/api/publish").unwrap(),
        Duration::from_secs(1),
    )
}

#[test]
fn streams_are_the_distinct_channels_of_the_targets() {
    let mut config = config(&[
        "ws://127.0.0.1:1/?channel=a&channel=b",
        "ws://127.0.0.1:1/?channel=b",
    ]);
    config.publish = Some(publish());
    let prepared = config.prepare().unwrap();
    assert_eq!(prepared.channels, ["a", "b"]);
    let plan = &prepared.plan;
    assert_eq!(
        (plan.targets[0].slot(0), plan.targets[0].slot(1)),
        (Some(0), Some(1))
    );
    assert_eq!(
        (plan.targets[1].slot(0), plan.targets[1].slot(1)),
        (None, Some(0))
    );
    assert_eq!(plan.targets[1].slot(9), None);
    assert_eq!(plan.more_sequences(), 1);
}

#[test]
fn a_plain_body_reaches_every_target() {
    let mut config = config(&["ws://127.0.0.1:1/?channel=a", "ws://127.0.0.1:1/room"]);
    config.publish = Some(Publish {
        body: PublishBody::Plain,
        ..publish()
    });
    let prepared = config.prepare().unwrap();
    assert_eq!(prepared.channels, [""]);
    assert!(
        prepared
            .plan
            .targets
            .iter()
            .all(|target| target.slot(0) == Some(0))
    );
}

#[test]
fn a_target_that_waits_for_commands_is_noticed() {
    let noticed = |url: &str, protocol| {
        let config = Config {
            protocol,
            ..config(&["ws://127.0.0.1:1/raw?channel=a", url])
        };
        let notice = config.notice_of_protocol();
        notice.is_some_and(|notice| notice.contains("--protocol") && notice.contains(url))
    };
    let url = "ws://127.0.0.1:1/connection/websocket?channel=a";
    assert!(noticed(url, Protocol::Raw));
    assert!(!noticed(url, Protocol::CentrifugeJson));
    assert!(!noticed("ws://127.0.0.1:1/connection", Protocol::Raw));
}

#[test]
fn what_cannot_work_is_refused_with_a_next_step() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config(&["ws://127.0.0.1:1/"]);
        config.publish = Some(Publish {
            channels: vec!["x".to_owned()],
            ..publish()
        });
        change(&mut config);
        config.prepare().unwrap_err()
    };
    assert_eq!(refused(&|c| c.targets.clear()), ConfigError::NoTarget);
    assert_eq!(refused(&|c| c.connections = 0), ConfigError::Connections(0));
    assert_eq!(
        refused(&|c| c.retries = 255),
        ConfigError::Range("--retries", 255, 0, u32::from(RETRIES_MAX))
    );
    assert_eq!(
        refused(&|c| c.heartbeat = Some(Duration::ZERO)),
        ConfigError::Zero("--heartbeat")
    );
    assert_eq!(
        refused(&|c| c.publish.as_mut().unwrap().payload_bytes = 25),
        ConfigError::Payload(25)
    );
    assert_eq!(
        refused(&|c| c.publish.as_mut().unwrap().api_key = Some("a\n".to_owned())),
        ConfigError::ApiKey
    );
    assert_eq!(
        refused(&|c| c.publish.as_mut().unwrap().channels.clear()),
        ConfigError::NoChannel
    );
    assert_eq!(
        refused(&|c| c.targets[0].channels = vec!["y".to_owned()]),
        ConfigError::NobodySubscribes("x".to_owned())
    );
}

#[test]
fn a_threshold_on_what_is_not_measured_is_refused() {
    let prepare = |expression: &str, change: &dyn Fn(&mut Config)| {
        let mut config = config(&["ws://127.0.0.1:1/?channel=a"]);
        config.thresholds = vec![Threshold::parse(expression).unwrap()];
        change(&mut config);
        config.prepare().map(|_| ())
    };
    let endpoint = || Endpoint::parse("http://127.0.0.1:1/").unwrap();
    for (expression, option) in [
        ("echo:p99<5ms", "--echo"),
        ("request:lost==0", "--request"),
        ("accepted<5ms", "--publish"),
    ] {
        let unmeasured = ThresholdRefused::Unmeasured(option);
        let refused = ConfigError::Threshold(expression.to_owned(), unmeasured);
        assert_eq!(prepare(expression, &|_| ()), Err(refused));
        let with_every_load = prepare(expression, &|config| {
            config.echo = Some(Echo::new(1.0));
            config.requests = Some(Requests::new(vec![endpoint()], 1.0));
            config.publish = Some(publish());
        });
        assert_eq!(with_every_load, Ok(()));
    }
    // Somebody else may publish.
    for expression in ["reach>=1", "fanout:last<5s", "missed==0", "messages>=1"] {
        assert_eq!(prepare(expression, &|_| ()), Ok(()));
    }
}

#[test]
fn clients_are_dealt_out_to_channels() {
    let mut config = config(&["ws://127.0.0.1:1/a", "ws://127.0.0.1:2/a?channel=all"]);
    config.protocol = Protocol::CentrifugeJson;
    config.channels = vec!["room".to_owned()];
    config.channel_count = Some(3);
    config.publish = Some(publish());
    let prepared = config.prepare().unwrap();
    assert_eq!(prepared.channels, ["room-1", "all", "room-2", "room-3"]);
    let plan = &prepared.plan;
    assert_eq!((plan.targets.len(), plan.destinations), (6, 2));
    let session = plan.session.as_ref().unwrap();
    let names = |target: usize| -> Vec<&str> {
        let subscriptions = plan.targets[target].subscriptions.iter();
        let names = subscriptions.map(|one| &session.channels[one.channel as usize]);
        names.map(String::as_str).collect()
    };
    assert_eq!(
        (names(0), names(1)),
        (vec!["room-1"], vec!["room-1", "all"])
    );
    assert_eq!(
        (names(4), names(5)),
        (vec!["room-3"], vec!["all", "room-3"])
    );
    assert_eq!(plan.targets[5].streams, [1, 3]);
    let slots = plan.targets[5]
        .subscriptions
        .iter()
        .map(|one| one.stream_slot);
    assert_eq!(slots.collect::<Vec<_>>(), [Some(0), Some(1)]);
    // Terminals of one address differ in their source, whatever their channel is.
    assert_eq!((plan.target_of(4), plan.target_of(6)), ((4, 2), (0, 3)));
}

#[test]
fn a_url_says_what_clients_without_commands_listen_to() {
    let mut config = config(&["ws://127.0.0.1:1/raw"]);
    config.channels = vec!["room".to_owned()];
    config.channel_count = Some(2);
    let plan = config.prepare().unwrap().plan;
    let paths: Vec<&str> = plan.targets.iter().map(|target| &*target.path).collect();
    assert_eq!(paths, ["/raw?channel=room-1", "/raw?channel=room-2"]);
    assert!(plan.session.is_none() && plan.targets[0].subscriptions.is_empty());
}

#[test]
fn options_of_one_protocol_are_refused_with_another() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config(&["ws://127.0.0.1:1/"]);
        change(&mut config);
        config.prepare().unwrap_err()
    };
    let token = refused(&|c| c.tokens = vec!["t".to_owned()]);
    assert_eq!(token, ConfigError::NeedsSession("--token"));
    let echo = refused(&|c| {
        c.protocol = Protocol::CentrifugeProtobuf;
        c.echo = Some(Echo::new(1.0));
    });
    assert_eq!(echo, ConfigError::NeedsRaw("--echo"));
    assert_eq!(
        refused(&|c| c.channel_count = Some(3)),
        ConfigError::ChannelName
    );
    let many = refused(&|c| {
        c.channels = vec!["x".to_owned()];
        c.channel_count = Some(1_000_001);
    });
    assert_eq!(many, ConfigError::Channels(1_000_001));
    let unnamed = refused(&|c| c.channels = vec![String::new()]);
    assert_eq!(unnamed, ConfigError::EmptyChannel);
}

#[test]
fn what_clients_publish_needs_a_session_and_a_channel() {
    let prepare = |change: &dyn Fn(&mut Config)| {
        let mut config = config(&["ws://127.0.0.1:1/", "ws://127.0.0.1:2/"]);
        config.protocol = Protocol::CentrifugeJson;
        config.channels = vec!["x".to_owned()];
        config.client_publish = Some(ClientPublish::new(10.0));
        change(&mut config);
        config.prepare().map(|prepared| prepared.plan)
    };
    let answered = prepare(&|_| ()).unwrap().answered.unwrap();
    assert_eq!(
        (answered.answer, answered.rate_per_s),
        (Answer::Reply, 10.0)
    );
    assert_eq!(
        prepare(&|c| c.protocol = Protocol::Raw).unwrap_err(),
        ConfigError::NeedsSession("--client-publish")
    );
    assert_eq!(
        prepare(&|c| c.channels.clear()).unwrap_err(),
        ConfigError::NoChannelOfClients
    );
    let small = |c: &mut Config| c.client_publish.as_mut().unwrap().payload_bytes = 38;
    assert_eq!(
        prepare(&small).unwrap_err(),
        ConfigError::MessageSize("--client-publish-size", 38, 39)
    );
    let silent = |c: &mut Config| c.client_publish.as_mut().unwrap().rate_per_s = 0.0;
    assert_eq!(
        prepare(&silent).unwrap_err(),
        ConfigError::Rate("--client-publish", 0.0)
    );
}

#[test]
fn a_position_is_one_of_one_channel() {
    let prepare = |epoch: &str, change: &dyn Fn(&mut Config)| {
        let mut config = config(&["ws://127.0.0.1:1/", "ws://127.0.0.1:2/"]);
        config.protocol = Protocol::CentrifugeJson;
        config.channels = vec!["x".to_owned()];
        config.recover_from = Some((epoch.to_owned(), 7));
        change(&mut config);
        config.prepare().map(|_| ())
    };
    assert_eq!(prepare("abc", &|_| ()), Ok(()));
    assert_eq!(
        prepare("abc", &|c| c.protocol = Protocol::Raw),
        Err(ConfigError::NeedsSession("--recover-from"))
    );
    for (count, channels) in [(0, None), (3, Some(3))] {
        let change = |c: &mut Config| {
            c.channel_count = channels;
            if count == 0 {
                c.channels.clear();
            }
        };
        assert_eq!(
            prepare("abc", &change),
            Err(ConfigError::RecoverFrom(count))
        );
    }
    let long = "x".repeat(65);
    for epoch in ["", &long] {
        assert_eq!(
            prepare(epoch, &|_| ()),
            Err(ConfigError::Epoch(epoch.to_owned()))
        );
    }
}

#[test]
fn a_crowd_is_dealt_to_more_channels_than_a_stamp_can_name() {
    let mut config = config(&["ws://127.0.0.1:1/connection/websocket"]);
    config.protocol = Protocol::CentrifugeJson;
    config.connections = 250_000;
    config.driver = Some(Driver::IoUring);
    config.channels = vec!["room".to_owned()];
    config.channel_count = Some(100_000);
    let Ok(prepared) = config.prepare() else {
        return assert!(Driver::probe_io_uring().is_err());
    };
    let plan = prepared.plan;
    assert_eq!(plan.target_of(199_999).0, 99_999);
    let session = plan.session.unwrap();
    assert_eq!(session.channels[99_999], "room-100000");
    assert_eq!(
        (session.subscribers[0], session.subscribers[99_999]),
        (3, 2)
    );
    config.publish = Some(publish());
    assert_eq!(config.prepare().unwrap_err(), ConfigError::TooManyChannels);
}

#[test]
fn a_low_descriptor_limit_means_more_threads_with_tables_of_their_own() {
    let limit = descriptor_limit().unwrap() as u64;
    let mut config = config(&["ws://127.0.0.1:1/"]);
    config.connections = limit * 3;
    let prepared = config.prepare().unwrap();
    assert_eq!(prepared.tables, Tables::Own);
    assert!(prepared.plan.threads >= 4);
    assert!(!prepared.notices.is_empty());
    config.threads = Some(2);
    assert!(matches!(
        config.prepare(),
        Err(ConfigError::Threads { threads: 2, .. })
    ));
    config.connections = 100;
    assert_eq!(config.prepare().unwrap().tables, Tables::Shared);
}

#[test]
fn parts_add_up_to_the_whole() {
    let mut config = config(&[
        "ws://127.0.0.1:1/a",
        "ws://127.0.0.1:1/b",
        "ws://127.0.0.1:1/c",
    ]);
    config.connections = 1001;
    config.threads = Some(4);
    let plan = config.prepare().unwrap().plan;
    let parts: Vec<_> = (0..4).map(|thread| plan.part(thread)).collect();
    assert_eq!(parts.iter().map(|part| part.count).sum::<u32>(), 1001);
    let mut seen = vec![false; 1001];
    for part in parts {
        for index in 0..part.count {
            let number = usize::try_from(plan.number(part, index)).unwrap();
            assert!(!std::mem::replace(&mut seen[number], true));
        }
    }
    assert!(seen.iter().all(|&seen| seen));
    assert_eq!(plan.target_of(7), (1, 2));
}

#[test]
fn keys_differ_by_terminal_and_attempt_and_can_be_made_again() {
    let plan = config(&["ws://127.0.0.1:1/"]).prepare().unwrap().plan;
    assert_eq!(plan.key(5, 1), plan.key(5, 1));
    assert_ne!(plan.key(5, 1), plan.key(5, 2));
    assert_ne!(plan.key(5, 1), plan.key(6, 1));
}

/// What a configuration is refused with, and the change that brings it about.
type Refused<'a> = (&'a str, &'a dyn Fn(&mut Config));

#[test]
fn a_variable_without_a_value_is_refused_wherever_it_stands() {
    let endpoint = || vec![Endpoint::parse("http://127.0.0.1:1/${nope}").unwrap()];
    let changes: [Refused<'_>; 7] = [
        ("targets: there is no variable ${nope}", &|config| {
            config.targets = vec![Target::parse("ws://127.0.0.1:1/?t=${nope}").unwrap()];
        }),
        (
            "targets: there are no accounts that ${account:t} could be of",
            &|config| {
                config.targets = vec![Target::parse("ws://127.0.0.1:1/${account:t}").unwrap()];
            },
        ),
        ("--header: ${stamp} has no value here", &|config| {
            config.headers = vec![("X-T".to_owned(), "${stamp}".to_owned())];
        }),
        (
            "--token has ${nope}, and no variable has a value there",
            &|config| {
                config.tokens = vec!["${nope}".to_owned()];
            },
        ),
        (
            "--request-body has ${terminal}, and no variable",
            &|config| {
                config.request_body = Some("x=${terminal}".to_owned());
            },
        ),
        ("--publish has ${nope}, and no variable", &|config| {
            let mut publish = Publish::new(endpoint().remove(0), Duration::from_secs(1));
            publish.endpoints = endpoint();
            config.publish = Some(publish);
        }),
        ("--request has ${nope}, and no variable", &|config| {
            config.requests = Some(Requests::new(endpoint(), 1.0));
        }),
    ];
    for (said, change) in changes {
        let mut config = config(&["ws://127.0.0.1:1/"]);
        change(&mut config);
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn who_pastes_headers_of_the_handshake_is_told_that_they_are_left_out() {
    let mut config = config(&["ws://127.0.0.1:1/"]);
    let pasted = [
        ("Sec-WebSocket-Key", "x"),
        ("Cookie", "a=b"),
        ("Sec-WebSocket-Extensions", "permessage-deflate"),
    ];
    let pasted = pasted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    config.headers = pasted.to_vec();
    let notices = |config: &Config| config.prepare().unwrap().notices.join("\n");
    let said = notices(&config);
    assert!(
        said.contains(
            "--header Sec-WebSocket-Key, Sec-WebSocket-Extensions: each client writes its own"
        ) && said.contains("give --compression"),
        "{said}"
    );
    config.compression = true;
    assert!(!notices(&config).contains("--compression"));
    assert_eq!(config.prepare().unwrap().plan.headers, pasted[1..2]);
}
