//! Beats that are not stored in time.

use super::pair::{ALL_INTERESTS, Pair};
use super::simulate;
use std::time::Duration;
use tokio::time::sleep;

#[test]
fn a_beat_that_is_not_stored_holds_up_nothing() {
    for interest in ALL_INTERESTS {
        simulate(async move {
            let mut pair = Pair::of(interest).await;
            pair.cloud.hold_beats();
            // A beat is due within 12 s, and its node waits for 2 s until it is stored. A node that hears no beat for 25 s opens its log again.
            for _ in 0..200 {
                let number = pair.submit(0, None);
                sleep(Duration::from_millis(100)).await;
                let answer = pair.answer(number);
                assert!(matches!(answer, Some(Ok(_))), "{interest:?}: {answer:?}");
            }
        });
    }
}
