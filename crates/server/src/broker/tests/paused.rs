//! A node that stands still for longer than the servers remember the keys of publications.

use super::pair::{ALL_INTERESTS, OPEN_AGAIN, Pair, SOON};
use super::simulate;
use myriad_shard::NotPublished;
use std::time::Duration;
use tokio::time::sleep;

/// Longer than the servers remember a key.
const PAUSE: Duration = Duration::from_secs(130);

#[test]
fn a_request_that_waited_through_a_long_pause_is_not_stored_again() {
    for interest in ALL_INTERESTS {
        simulate(async move {
            let mut pair = Pair::of(interest).await;
            pair.start().await;
            pair.nodes[0].freezer.freeze();
            // It waits at the node. Whoever sent it gives up, and sends it to another one.
            let old = pair.submit(0, Some(1));
            let again = pair.submit(1, Some(1));
            sleep(PAUSE).await;
            assert!(matches!(pair.answer(again), Some(Ok(_))));
            pair.nodes[0].freezer.thaw();
            sleep(SOON).await;
            let refused = Some(Err(NotPublished::Unavailable));
            assert_eq!(pair.answer(old), refused, "{interest:?}");
            let stored = pair.cloud.with_truth(|truth| truth.publications(0, 0));
            assert_eq!(stored, [again]);
            // It goes on as before.
            sleep(OPEN_AGAIN).await;
            pair.publish(0, Some(2)).await;
        });
    }
}

#[test]
fn a_request_that_waited_through_a_short_pause_is_stored_once() {
    for interest in ALL_INTERESTS {
        simulate(async move {
            let mut pair = Pair::of(interest).await;
            pair.start().await;
            pair.nodes[0].freezer.freeze();
            let old = pair.submit(0, Some(1));
            let again = pair.submit(1, Some(1));
            sleep(SOON).await;
            pair.nodes[0].freezer.thaw();
            sleep(OPEN_AGAIN).await;
            let (old, of_again) = (pair.answer(old), pair.answer(again));
            assert!(matches!(old, Some(Ok(_))), "{interest:?}: {old:?}");
            assert_eq!(old, of_again);
            let stored = pair.cloud.with_truth(|truth| truth.publications(0, 0));
            assert_eq!(stored, [again]);
        });
    }
}
