//! Defects end what they are about, and nothing else.

use crate::node::Node;
use crate::peer::{Errand, Manners};
use crate::plan::Plan;
use crate::world::World;
use myriad_reactor::sim::Prng;
use myriad_shard::{CloseReason, DefectScope, Now, Plant};

/// Channels of the world's peers.
const ONE: usize = 1;
const OTHER: usize = 2;

/// One shard whose defects are noted, and two subscribers of each channel.
fn world() -> World {
    let mut plan = Plan::plain();
    plan.plants_defects = true;
    let mut world = World::new(plan, Prng::new(1), false);
    for seat in &mut world.seats {
        seat.shard.survive_defects();
    }
    for channel in [ONE, ONE, OTHER, OTHER] {
        world.connect_for(Errand::Stream, &[channel]);
        let peer = world.peers.last_mut().expect("just connected");
        peer.manners = Manners::GOOD;
        world.settle();
    }
    world
}

/// What was counted and noted of one scope.
fn counted(world: &World, scope: &DefectScope) -> (u64, Vec<&'static str>) {
    let count = world.sum(|metrics| &metrics.defects[scope.index()]);
    let lines = world.mesh.take_defects(0, Now(world.scene.now));
    let label = DefectScope::LABELS[scope.index()];
    assert!(lines.kept.iter().all(|line| line.scope == label));
    for line in &lines.kept {
        assert!(line.at.0.ends_with(".rs") && line.at.1 > 0);
        assert!(line.circumstances.contains("of a turn"), "{line:?}");
    }
    (
        count,
        lines.kept.iter().map(|line| line.statement).collect(),
    )
}

/// Nothing is left of what ended, and those who stayed get what is published now.
fn leave(mut world: World, stay: usize) {
    assert_eq!(world.peers.len(), stay);
    let before = world.sum(|metrics| &metrics.deliveries);
    world.publish_to(OTHER, 50);
    world.settle();
    assert_eq!(world.sum(|metrics| &metrics.deliveries), before + 2);
    let again = world.sum(|metrics| &metrics.defects_left_out);
    assert_eq!(again, 0, "it does not come back");
    world.leave();
}

#[test]
fn a_defect_of_a_connection_ends_that_connection() {
    let mut world = world();
    world.seats[0].shard.plant(&Plant::Connection(0));
    world.publish_to(ONE, 50);
    world.settle();
    let closes = world.closes_by_reason();
    assert_eq!(closes[CloseReason::Defect as usize], 1);
    let told = counted(&world, &DefectScope::Connection(0));
    assert_eq!(told, (1, vec!["nothing is planted"]));
    leave(world, 3);
}

#[test]
fn a_defect_of_a_channel_ends_its_subscriptions() {
    let mut world = world();
    let name: Box<str> = world.ledger.query_name(ONE).into();
    world.seats[0].shard.plant(&Plant::Channel(name.clone()));
    world.publish_to(ONE, 50);
    world.settle();
    // Clients of `raw` have nothing but their subscription.
    let closes = world.closes_by_reason();
    assert_eq!(closes[CloseReason::InsufficientState as usize], 2);
    let told = counted(&world, &DefectScope::Channel((*name).into()));
    let statement = "a home delivers in order, each publication once";
    assert_eq!(told, (1, vec![statement]));
    leave(world, 2);
}
