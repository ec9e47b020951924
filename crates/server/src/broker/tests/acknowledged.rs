//! Servers that come back without what they had acknowledged, and have other messages in its place before the publisher's node looks.

use super::pair::{ALL_INTERESTS, OPEN_AGAIN, Pair, SOON};
use super::simulate;
use myriad_shard::Epoch;
use std::time::Duration;
use tokio::time::sleep;

/// The first node publishes something that the servers lose while it has no connection. Then the second node writes in its place.
async fn lose_a_publication() -> (Pair, Epoch) {
    let mut pair = Pair::new().await;
    let epoch = pair.epoch();
    let lost = pair.publish(0, None).await;
    assert_eq!((lost.epoch, lost.offset), (epoch, pair.cloud.last()));
    pair.nodes[0].client.cut();
    pair.cloud.lose_leader();
    pair.cloud.elect(1);
    pair.start().await;
    let other = pair.publish(1, None).await;
    assert!(
        other.offset > lost.offset,
        "the log goes further than before"
    );
    assert_eq!(other.epoch, epoch, "nobody has noticed");
    (pair, epoch)
}

#[test]
fn a_message_in_the_place_of_an_acknowledged_one_is_a_loss() {
    simulate(async {
        let (pair, epoch) = lose_a_publication().await;
        pair.nodes[0].client.reconnect();
        sleep(OPEN_AGAIN).await;
        assert_ne!(pair.epoch(), epoch);
    });
}

#[test]
fn a_publication_behind_a_loss_does_not_hide_it() {
    simulate(async {
        let (mut pair, epoch) = lose_a_publication().await;
        pair.nodes[0].client.reconnect();
        // The log is not open yet.
        let next = pair.publish(0, None).await;
        assert_eq!(next.offset, pair.cloud.last());
        sleep(OPEN_AGAIN).await;
        assert_ne!(pair.epoch(), epoch);
    });
}

#[test]
fn a_publication_behind_a_beat_that_its_node_has_not_heard_is_of_the_beats_epoch() {
    // The longer a node has no connection, the longer it pauses until it opens the log again.
    for (interest, tenths) in (1..60).flat_map(|tenths| ALL_INTERESTS.map(|one| (one, tenths))) {
        simulate(async move {
            let mut pair = Pair::of(interest).await;
            let next = Epoch::new(9);
            assert_ne!(pair.epoch(), next);
            pair.nodes[0].client.cut();
            pair.cloud.write_beats(&[next]);
            sleep(Duration::from_millis(100 * tenths)).await;
            pair.nodes[0].client.reconnect();
            let number = pair.submit(0, None);
            sleep(Duration::from_millis(50)).await;
            // The last beat stands behind the publication.
            pair.cloud.write_beats(&[next]);
            sleep(SOON).await;
            let place = pair.answer(number).expect("an answer");
            let epoch = place.expect("a place").epoch;
            assert_eq!(epoch, next, "{interest:?}, {tenths}");
        });
    }
}

#[test]
fn a_node_that_was_acknowledged_behind_a_loss_finds_it() {
    simulate(async {
        let mut pair = Pair::new().await;
        pair.start().await;
        let epoch = pair.epoch();
        let lost = pair.publish(0, None).await;
        assert_eq!(lost.offset, pair.cloud.last());
        // No connection breaks, and no node hears what comes in its place.
        pair.cloud.elect(1);
        let other = pair.publish(1, None).await;
        assert_eq!(other.offset, lost.offset);
        let next = pair.publish(0, None).await;
        assert!(next.offset > lost.offset && next.epoch == epoch, "{next:?}");
        sleep(OPEN_AGAIN).await;
        assert_ne!(pair.epoch(), epoch);
    });
}

#[test]
fn a_node_that_publishes_nothing_more_finds_a_loss_too() {
    simulate(async {
        let mut pair = Pair::new().await;
        let epoch = pair.epoch();
        let lost = pair.publish(0, None).await;
        assert_eq!(lost.offset, pair.cloud.last());
        pair.cloud.elect(1);
        // The beat of the second node comes in its place, and the first one hears it.
        pair.start().await;
        assert!(pair.cloud.last() >= lost.offset);
        sleep(OPEN_AGAIN).await;
        assert_ne!(pair.epoch(), epoch);
    });
}

#[test]
fn a_stream_that_ends_before_what_it_acknowledged_has_a_loss() {
    simulate(async {
        let mut pair = Pair::new().await;
        let epoch = pair.epoch();
        for _ in 0..5 {
            pair.publish(0, None).await;
        }
        let lost = pair.cloud.last();
        pair.cloud.elect(5);
        // One beat comes, and the node hears it. The stream ends far before what the node has in doubt then.
        pair.cloud.write_beats(&[epoch]);
        assert!(pair.cloud.last() < lost);
        sleep(OPEN_AGAIN).await;
        assert_ne!(pair.epoch(), epoch);
    });
}

#[test]
fn a_leader_that_does_not_show_its_end_yet_has_lost_nothing() {
    for interest in ALL_INTERESTS {
        simulate(async move {
            let mut pair = Pair::of(interest).await;
            let epoch = pair.epoch();
            pair.publish(0, None).await;
            pair.cloud.hide_end(5);
            pair.nodes[0].client.reconnect();
            sleep(OPEN_AGAIN).await;
            assert_eq!(pair.epoch(), epoch, "{interest:?}");
        });
    }
}

#[test]
fn a_beat_that_comes_right_behind_a_mark_is_no_loss() {
    simulate(async {
        let pair = Pair::new().await;
        let epoch = pair.epoch();
        pair.cloud.repeat_beat();
        pair.nodes[0].client.reconnect();
        sleep(OPEN_AGAIN).await;
        // What the node knows before this pause is looked for.
        pair.cloud.write_beats(&[epoch]);
        sleep(OPEN_AGAIN).await;
        assert_eq!(pair.epoch(), epoch);
    });
}

#[test]
fn a_loss_of_which_a_beat_has_told_is_not_found_again() {
    simulate(async {
        let mut pair = Pair::of_readers().await;
        let (epoch, next) = (pair.epoch(), Epoch::new(9));
        assert_ne!(epoch, next);
        let numbers = [0; 3].map(|node| pair.submit(node, None));
        sleep(SOON).await;
        let last = pair.answer(numbers[2]).expect("an answer");
        assert_eq!(last.expect("a place").offset, pair.cloud.last());
        pair.cloud.elect(3);
        // Others come in their places, which the node has read already. Then somebody tells of the loss.
        pair.cloud.write_beats(&[epoch, epoch, epoch, next]);
        sleep(OPEN_AGAIN).await;
        assert_eq!(pair.epoch(), next);
    });
}

#[test]
fn a_publication_that_has_gone_is_no_loss() {
    simulate(async {
        let mut pair = Pair::new().await;
        pair.start().await;
        let epoch = pair.epoch();
        pair.publish(0, None).await;
        pair.remove_history(1).await;
        pair.open_again().await;
        assert_eq!(pair.epoch(), epoch);
        // Nor is a removal of its own.
        pair.remove_history(0).await;
        pair.open_again().await;
        assert_eq!(pair.epoch(), epoch);
    });
}

#[test]
fn a_publication_in_the_stead_of_which_another_one_was_stored_is_no_loss() {
    simulate(async {
        let mut pair = Pair::new().await;
        pair.start().await;
        let epoch = pair.epoch();
        let first = pair.publish(1, Some(7)).await;
        let second = pair.publish(0, Some(7)).await;
        assert_eq!(first, second, "both have one key");
        pair.open_again().await;
        assert_eq!(pair.epoch(), epoch);
    });
}
