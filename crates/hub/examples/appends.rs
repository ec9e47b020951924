//! How long a channel's home takes for one append to a stream, which it handles in one turn.
//!
//! `cargo run --release -p myriad-hub --example appends`

use myriad_hub::{
    AppendToStream, Asker, ChannelOptions, Content, CreateStream, Epoch, Home, HomeEffect,
    HomeSettings, Namespaces, Now, Payload, Permit, Pool, RequestId, StreamCommand, StreamEntry,
    StreamExpiry, StreamRequest,
};
use myriad_wire::streams::MediaType;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Appends of each kind.
const ROUNDS: usize = 40;
/// The largest body of a request, and the most elements that an operator may allow.
const BODY_BYTES_MAX: usize = 8 << 20;
const ELEMENTS: [usize; 5] = [1_000, 10_000, 20_000, 50_000, 100_000];

fn main() {
    println!("elements, bytes of each, shards that listen: median and longest of {ROUNDS} appends");
    for elements in ELEMENTS {
        for bytes in [16, BODY_BYTES_MAX / elements - 1] {
            for shards in [0, 2] {
                measure(elements, bytes, shards);
            }
        }
    }
}

fn measure(elements: usize, bytes: usize, shards: usize) {
    let options = ChannelOptions {
        history_size: u32::try_from(elements).expect("at most 100,000"),
        history_ttl: Duration::from_secs(3_600),
        ..ChannelOptions::default()
    };
    let settings = HomeSettings {
        epoch: Epoch::new(1),
        epoch_seed: 1 << 40,
        namespaces: Arc::new(Namespaces::new(options, [])),
        logs: 0,
        by_channel: false,
        history_bytes_max: 1 << 30,
        batch_bytes_max: 256 << 10,
        vacated_delay: None,
    };
    let mut home = Home::new(settings, Now(0));
    ask(&mut home, StreamCommand::Create(stream()));
    for shard in 0..shards {
        home.handle_join("large".into(), shard, 1, Now(0));
    }
    while home.poll_effect().is_some() {}
    let pool = Pool::new(1 << 30);
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let command = StreamCommand::Append(append(elements, bytes, &pool));
            let began = Instant::now();
            ask(&mut home, command);
            let mut deliveries = Vec::new();
            while let Some(effect) = home.poll_effect() {
                if let HomeEffect::Deliver { delivery, .. } = effect {
                    deliveries.push(delivery);
                }
            }
            // Somebody else frees them where somebody listens.
            if shards == 0 {
                deliveries.clear();
            }
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    let (median, longest) = (times[ROUNDS / 2], times[ROUNDS - 1]);
    println!("{elements:>7} {bytes:>8} {shards:>3}: {median:>10.2?} {longest:>10.2?}");
}

fn ask(home: &mut Home, command: StreamCommand) {
    let request = StreamRequest {
        channel: "large".into(),
        asker: Asker::Control(RequestId(1)),
        command,
    };
    home.handle_stream(request, Now(1));
}

fn stream() -> CreateStream {
    CreateStream {
        content_type: MediaType::json(),
        expiry: StreamExpiry::Never,
        expires_in: Duration::ZERO,
        is_closed: false,
        entries: Vec::new(),
    }
}

fn append(elements: usize, bytes: usize, pool: &Pool) -> AppendToStream {
    let entry = |number: usize| {
        let text = format!("{number:0>bytes$}");
        let permit = Permit::take(pool, bytes as u64, 0).expect("room");
        let content = Arc::new(Content::new(Payload::Json(text.into())));
        StreamEntry { content, permit }
    };
    AppendToStream {
        content_type: MediaType::json(),
        entries: (0..elements).map(entry).collect(),
        by: myriad_hub::Appender::Application("".into()),
        producer: None,
        stream_seq: None,
        closes: false,
    }
}
