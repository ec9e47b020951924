//! The capacity of a chain of machines, worked out before any of them is bought.
//!
//! A [`Chain`] is plain data: what the clients do ([`Traffic`]) and the hops their connections pass, in order.
//! [`Plan::new`] is a pure function from it to what each node needs, where each hop stops and why, the weakest
//! hop, and the same chain at a hundred million connections. Every number is a [`Figure`] or a [`Limit`]: it
//! carries its formula with the numbers filled in, and where each cost in it comes from ([`mod@costs`]).
//!
//! What nobody told us is not assumed to be enough: a resource whose supply is unknown has a need and no limit.
#![forbid(unsafe_code)]

mod chain;
pub mod costs;
mod demand;
mod figure;
mod proxy;
mod render;
mod resource;
mod scale;
mod server;
mod switch;
mod traffic;

pub use chain::{BehindMyriad, Chain, Hop, Kind, Myriad, Nginx, SlbMode};
pub use figure::{Figure, Unit};
pub use render::render;
pub use resource::{Limit, Resource};
pub use scale::{HopNodes, ScaleOut};
pub use traffic::Traffic;

use myriad_doctor::Effect;
use serde::Serialize;

/// What a chain needs, and where it ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Connections wanted.
    pub connections: u64,
    /// Clients, at the connections that each of them opens.
    pub clients: u64,
    /// True if no limit we know of stops the chain before that.
    pub carries: bool,
    /// What stops the chain first, if anything we know of does.
    pub weakest: Option<Weakest>,
    /// What one connection sends and receives.
    pub traffic: Vec<Figure>,
    /// The hops in the order the clients meet them.
    pub hops: Vec<HopPlan>,
    /// The same chain for more connections.
    pub scale_out: Vec<ScaleOut>,
}

/// The first limit of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Weakest {
    /// Which hop, from 1.
    pub hop: usize,
    /// Its kind.
    pub kind: &'static str,
    /// The resource that ends.
    pub resource: &'static str,
    /// Connections the chain carries at most.
    pub connections: u64,
    /// Clients, at the connections that each of them opens.
    pub clients: u64,
    /// What to do about it.
    pub remedy: String,
}

/// One hop of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HopPlan {
    /// Its kind, as in `--hop`.
    pub kind: &'static str,
    /// Machines.
    pub nodes: u64,
    /// Of which this many may be down.
    pub spare: u64,
    /// Connections on each of the others when all that are wanted are open.
    pub connections_a_node: u64,
    /// The nearest limit first, those without a limit last.
    pub resources: Vec<Resource>,
    /// What is worth knowing beside the numbers.
    pub remarks: Vec<String>,
}

impl HopPlan {
    /// The first limit that stops further connections.
    #[must_use]
    pub fn first_stop(&self) -> Option<(&'static str, &Limit)> {
        self.resources
            .iter()
            .filter_map(|resource| Some((resource.name, resource.limit.as_ref()?)))
            .filter(|(_, limit)| limit.effect == Effect::Stops)
            .min_by_key(|(_, limit)| limit.connections)
    }
}

impl Plan {
    /// Computes the chain, and the same chain for each number of connections in `scale_to`.
    #[must_use]
    pub fn new(chain: &Chain, scale_to: &[u64]) -> Self {
        let hops: Vec<HopPlan> = (0..chain.hops.len())
            .map(|index| hop_plan(chain, index))
            .collect();
        let weakest = weakest(chain, &hops);
        Self {
            connections: chain.connections,
            clients: chain.clients(chain.connections),
            carries: weakest
                .as_ref()
                .is_none_or(|weakest| weakest.connections >= chain.connections),
            weakest,
            traffic: chain.traffic.figures(chain.connections),
            hops,
            scale_out: scale_to
                .iter()
                .map(|connections| scale::scale_out(chain, *connections))
                .collect(),
        }
    }
}

fn weakest(chain: &Chain, hops: &[HopPlan]) -> Option<Weakest> {
    hops.iter()
        .enumerate()
        .filter_map(|(index, hop)| {
            let (resource, limit) = hop.first_stop()?;
            Some(Weakest {
                hop: index + 1,
                kind: hop.kind,
                resource,
                connections: limit.connections,
                clients: chain.clients(limit.connections),
                remedy: limit.remedy.clone(),
            })
        })
        .min_by_key(|weakest| weakest.connections)
}

fn hop_plan(chain: &Chain, index: usize) -> HopPlan {
    let hop = &chain.hops[index];
    let share = resource::Share::new(chain, hop);
    let (mut resources, remarks) = resources(chain, index, &share);
    resources.sort_by_key(|resource| {
        resource
            .limit
            .as_ref()
            .map_or(u64::MAX, |limit| limit.connections)
    });
    HopPlan {
        kind: hop.kind.name(),
        nodes: hop.nodes,
        spare: hop.spare,
        connections_a_node: share.connections,
        resources,
        remarks,
    }
}

fn resources(chain: &Chain, index: usize, share: &resource::Share) -> (Vec<Resource>, Vec<String>) {
    let hop = &chain.hops[index];
    let next = chain.hops.get(index + 1);
    match &hop.kind {
        Kind::Slb(mode) => switch::resources(chain, hop, *mode, next, share),
        Kind::Nginx(nginx) | Kind::Ingress(nginx) => {
            proxy::resources(chain, hop, nginx, next, share)
        }
        Kind::Myriad(myriad) => server::resources(chain, hop, *myriad, share),
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
