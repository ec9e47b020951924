//! `[webhooks]`.

use super::Form::{Count, List, Text, Time};
use super::{Described, Group};

/// `[webhooks]`.
pub(in super::super) const WEBHOOKS: &[Group] = &[Group {
    heading: "Events",
    options: &[
        Described::new(
            "vacated_delay",
            Time,
            "3s",
            "How long a channel must have had no subscriber before it counts as vacated, at most 1h.",
        )
        .fixed(),
        Described::table(
            "endpoints",
            "Who is told what happens, by signed batches of events.",
        ),
    ],
}];

/// `[[webhooks.endpoints]]`.
pub(in super::super) const WEBHOOK_ENDPOINT: &[Group] = &[
    Group {
        heading: "Who is told what",
        options: &[
            Described::depends(
                "name",
                Text,
                "none: each endpoint needs one",
                "app",
                "Its name in metrics and in the log: 1 to 64 of letters, digits, -, _ and .",
            ),
            Described::depends(
                "url",
                Text,
                "none: each endpoint needs one",
                "https://app.example.com/myriad-events",
                "Where batches are posted.",
            )
            .secret(),
            Described::new(
                "secret",
                Text,
                "",
                "What batches are signed with, such as 32 random bytes in hexadecimal.",
            )
            .secret(),
            Described::depends(
                "events",
                List,
                "all events",
                "[\"channel_occupied\", \"channel_vacated\", \"client_connected\", \"client_disconnected\"]",
                "The events that it is told.",
            ),
            Described::new(
                "channels",
                List,
                "[\"*\"]",
                "The channels whose events it is told: names, or the beginning of names with * after it.",
            ),
        ],
    },
    Group {
        heading: "How it is told",
        options: &[
            Described::new("batch_size", Count, "256", "Events of a batch, 1 to 256."),
            Described::new(
                "batch_delay",
                Time,
                "1s",
                "How long an event waits for others, at most 60s.",
            ),
            Described::new("timeout", Time, "5s", "Time for an answer, 10ms to 60s."),
            Described::new(
                "retry_for",
                Time,
                "5m",
                "How long a batch is tried; 0 for once.",
            ),
            Described::new(
                "queue_size",
                Count,
                "100k",
                "Events that wait, 256 to 10m; past it the oldest are dropped.",
            ),
        ],
    },
];
