//! A node that ends in order: what it was given is published, or refused, before it ends.

use super::pair::{Pair, SOON};
use super::simulate;
use myriad_shard::NotPublished;
use std::time::Duration;
use tokio::time::sleep;

/// Publications of one channel: each waits for the one before it.
const PUBLICATIONS: usize = 5;
/// Time in which the servers have no leader, and publications still wait for it.
const WITHOUT_LEADER: Duration = Duration::from_secs(2);

async fn given() -> (Pair, Vec<u64>) {
    let mut pair = Pair::new().await;
    let numbers = (0..PUBLICATIONS).map(|_| pair.submit(0, None)).collect();
    (pair, numbers)
}

#[test]
fn what_was_given_to_a_node_that_ends_is_published() {
    simulate(async {
        let (pair, numbers) = given().await;
        // Its publisher has not even been told of them.
        pair.nodes[0].finish();
        sleep(SOON).await;
        assert!(pair.nodes[0].has_finished());
        for number in numbers {
            let answer = pair.answer(number);
            assert!(matches!(answer, Some(Ok(_))), "{number}: {answer:?}");
        }
    });
}

#[test]
fn a_node_does_not_end_before_its_publications_are_acknowledged() {
    simulate(async {
        let mut pair = Pair::new().await;
        pair.cloud.lose_leader();
        let number = pair.submit(0, None);
        pair.nodes[0].finish();
        sleep(WITHOUT_LEADER).await;
        assert!(!pair.nodes[0].has_finished() && pair.answer(number).is_none());
        pair.cloud.elect(0);
        sleep(SOON).await;
        assert!(pair.nodes[0].has_finished());
        assert!(matches!(pair.answer(number), Some(Ok(_))));
    });
}

#[test]
fn a_node_that_ends_refuses_what_nobody_takes() {
    simulate(async {
        let mut pair = Pair::new().await;
        pair.cloud.lose_leader();
        let numbers = [0; PUBLICATIONS].map(|node| pair.submit(node, None));
        pair.nodes[0].finish();
        sleep(WITHOUT_LEADER + SOON).await;
        assert!(pair.nodes[0].has_finished());
        let refused = Some(Err(NotPublished::Unavailable));
        assert_eq!(
            numbers.map(|number| pair.answer(number)),
            [refused; PUBLICATIONS]
        );
    });
}
