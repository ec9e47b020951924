//! How an agent compares its clock with the controller's.

use crate::clock::{Clock as _, RunClock};
use crate::fleet::messages::{read, subject_of_run};
use crate::fleet::offset::{Exchange, Offset, best, wall_now};
use async_nats::Client;
use std::time::Duration;
use tokio::time::timeout;

/// Exchanges of a comparison, and the time for one of them.
const EXCHANGES: usize = 16;
const EXCHANGE_WITHIN: Duration = Duration::from_secs(1);

/// Compares this clock with the controller's.
pub(super) async fn compare(client: Client, run: String, here: RunClock) -> Option<Offset> {
    let subject = subject_of_run(&run, "clock");
    let mut exchanges = Vec::with_capacity(EXCHANGES);
    for _ in 0..EXCHANGES {
        let (sent, wall_sent) = (here.now().0, wall_now());
        let asked = client.request(subject.clone(), "".into());
        let Ok(Ok(answer)) = timeout(EXCHANGE_WITHIN, asked).await else {
            continue;
        };
        let answered = here.now().0;
        if let Some(told) = read(&answer.payload) {
            exchanges.push(Exchange {
                sent,
                answered,
                wall_sent,
                told,
            });
        }
    }
    best(&exchanges)
}
