//! Publications that wait to leave together, through the shards.

use crate::node::Node;
use crate::peer::{Errand, Manners};
use crate::plan::Plan;
use crate::world::World;
use myriad_hub::{ChannelOptions, Namespaces, Right};
use myriad_reactor::sim::Prng;
use std::sync::Arc;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(200);

fn world(shards: usize) -> World {
    let mut plan = Plan::plain();
    plan.shards = shards;
    let options = ChannelOptions {
        batch_delay: DELAY,
        subscribe: Right::ALL,
        ..ChannelOptions::default()
    };
    plan.settings.namespaces = Arc::new(Namespaces::new(options, []));
    World::new(plan, Prng::new(1), false)
}

/// Subscribers of channel 1 that do nothing wrong.
fn subscribe(world: &mut World, count: usize) {
    for _ in 0..count {
        world.connect_for(Errand::Stream, &[1]);
        let peer = world.peers.last_mut().expect("just connected");
        peer.manners = Manners::GOOD;
        // What waits is not over: a member of a shard that has joined already gets it.
        peer.subscriptions[0].earliest = 0;
    }
    world.settle();
    assert!(world.peers.iter().all(|peer| peer.status == Some(101)));
}

fn deliveries(world: &World) -> Vec<u64> {
    world.peers.iter().map(|peer| peer.deliveries).collect()
}

/// The shard sleeps until the batch is due: nothing else wakes it.
#[test]
fn a_batch_leaves_after_its_delay() {
    let mut world = world(1);
    subscribe(&mut world, 2);
    (0..3).for_each(|_| world.publish_to(1, 100));
    world.settle();
    assert_eq!(deliveries(&world), [0, 0]);
    assert!(world.mesh.publication_bytes() > 0, "permits wait with it");
    // A member that comes now is told the shard's position, which is before the batch.
    subscribe(&mut world, 1);
    world.walk(DELAY);
    world.check_quiet();
    assert_eq!(deliveries(&world), [3, 3, 3]);
    world.leave();
}

/// Of a batch that began before a shard joined, its members get the rest.
#[test]
fn a_batch_meets_shards_that_join_and_leave() {
    let mut world = world(4);
    subscribe(&mut world, 1);
    (0..3).for_each(|_| world.publish_to(1, 100));
    world.settle();
    subscribe(&mut world, 12);
    world.publish_to(1, 100);
    world.walk(DELAY);
    world.check_quiet();
    let deliveries = deliveries(&world);
    assert_eq!(deliveries[0], 4);
    assert!(deliveries.contains(&1), "on a shard that joined meanwhile");
    assert!(deliveries.iter().all(|count| matches!(count, 1 | 4)));
    world.leave();
}
