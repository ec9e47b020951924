//! How an agent compares its clock with the controller's.

use crate::clock::{Clock as _, RunClock};
use crate::fleet::crew::Crew;
use crate::fleet::messages::{read, subject_of_run};
use crate::fleet::offset::{Exchange, Offset, best, wall_now};
use async_nats::Client;
use std::time::Duration;
use tokio::time::timeout;

/// Exchanges of a comparison, and the time for one of them.
const EXCHANGES: usize = 16;
const EXCHANGE_WITHIN: Duration = Duration::from_secs(1);

/// Compares clocks during a run: `here` reads the controller's time already, if nothing has drifted.
pub(super) async fn compare_once(client: &Client, run: &str, crew: &Crew) -> Option<Offset> {
    let offset = compare(client, run, crew.clock()).await?;
    Some(Offset {
        nanos: crew.offset().nanos.saturating_add(offset.nanos),
        ..offset
    })
}

/// Compares this clock with the controller's.
pub(super) async fn compare(client: &Client, run: &str, here: RunClock) -> Option<Offset> {
    let subject = subject_of_run(run, "clock");
    let mut exchanges = Vec::with_capacity(EXCHANGES);
    for _ in 0..EXCHANGES {
        let (sent, wall_sent) = (here.now().0, wall_now());
        let asked = client.request(subject.clone(), "".into());
        let Ok(Ok(answer)) = timeout(EXCHANGE_WITHIN, asked).await else {
            break;
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
