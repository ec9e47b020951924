//! A balancer of packets: it holds a table entry for each connection, and ports only where it hides the source.

use super::chain::{Chain, Hop, SlbMode};
use super::costs;
use super::demand::{Demand, Term};
use super::figure::Unit;
use super::resource::{Resource, Share, connections_max, memory_supply, source_ports};

pub(crate) fn resources(
    chain: &Chain,
    hop: &Hop,
    mode: SlbMode,
    next: Option<&Hop>,
    share: &Share,
) -> (Vec<Resource>, Vec<String>) {
    let mut resources = vec![table(hop, share), bandwidth(chain, hop, mode, share)];
    if mode == SlbMode::FullNat {
        resources.push(source_ports(hop, next, share));
    }
    resources.extend(connections_max(
        hop,
        share,
        "connections",
        "given: connections=",
    ));
    let remark = match mode {
        SlbMode::Dr => "Direct return: only what clients send passes it, and it takes no ports.",
        SlbMode::Nat => {
            "It rewrites destinations only: both directions pass it, and it takes no ports."
        }
        SlbMode::FullNat => {
            "It rewrites the source too: every connection takes a port of its own addresses."
        }
    };
    let mut remarks = vec![remark.to_owned()];
    if hop.connections_max.is_none() {
        remarks.push(
            "A hired balancer has a limit of connections in its contract: give it as connections=."
                .to_owned(),
        );
    }
    (resources, remarks)
}

fn table(hop: &Hop, share: &Share) -> Resource {
    let mut demand = Demand::new("connection table", Unit::Bytes);
    demand.terms.push(Term::cost(costs::IPVS_BYTES, "entry"));
    demand.supply = memory_supply(hop);
    demand.remedy = "More memory, or more nodes.".into();
    demand.resource(share)
}

fn bandwidth(chain: &Chain, hop: &Hop, mode: SlbMode, share: &Share) -> Resource {
    let traffic = &chain.traffic;
    let up = (traffic.up_bits_per_s(chain.connections), "from clients");
    let down = (traffic.down_bits_per_s(chain.connections), "to clients");
    let terms = match mode {
        SlbMode::Dr => vec![up],
        SlbMode::Nat | SlbMode::FullNat => vec![up, down],
    };
    let mut demand = Demand::bandwidth("bandwidth each way", hop, &terms);
    demand.remedy = "A faster network, more nodes, or direct return (mode=dr).".into();
    demand.resource(share)
}
