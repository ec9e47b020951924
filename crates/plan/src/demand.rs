//! A need as a sum of parts, and the most connections for which a supply suffices.

use super::chain::{Chain, Hop};
use super::costs::{self, Cost};
use super::figure::{Figure, Unit};
use super::resource::{CONNECTIONS_MAX, Limit, Resource, Share, float, times};
use myriad_doctor::Effect;
use myriad_units::{count, significant};

/// One part of a need that grows with the connections.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    /// For each connection.
    pub(crate) each: f64,
    /// The most this part takes, however many connections there are.
    pub(crate) at_most: Option<f64>,
    /// In a few words.
    pub(crate) what: &'static str,
    pub(crate) source: &'static str,
}

impl Term {
    pub(crate) fn new(each: f64, what: &'static str, source: &'static str) -> Self {
        Self {
            each,
            at_most: None,
            what,
            source,
        }
    }

    pub(crate) fn cost(cost: Cost, what: &'static str) -> Self {
        Self::new(cost.value, what, cost.source)
    }

    pub(crate) fn at_most(mut self, bound: f64) -> Self {
        self.at_most = Some(bound);
        self
    }

    fn need(&self, connections: f64) -> f64 {
        let need = connections * self.each;
        self.at_most.map_or(need, |bound| need.min(bound))
    }
}

/// A need that is a fixed part and a sum of terms: memory, bandwidth, cores, descriptors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) fixed: Vec<(f64, String, &'static str)>,
    pub(crate) terms: Vec<Term>,
    /// How much there is, in the demand's unit, and how that is called after "fill".
    pub(crate) supply: Option<(f64, String)>,
    pub(crate) effect: Effect,
    pub(crate) remedy: String,
}

impl Demand {
    /// A demand of nothing yet, whose supply is unknown.
    pub(crate) fn new(name: &'static str, unit: Unit) -> Self {
        Self {
            name,
            unit,
            fixed: Vec::new(),
            terms: Vec::new(),
            supply: None,
            effect: Effect::Stops,
            remedy: String::new(),
        }
    }

    /// Bits a second in each direction that counts, each with what it is.
    pub(crate) fn bandwidth(
        name: &'static str,
        hop: &Hop,
        bits_per_s: &[(f64, &'static str)],
    ) -> Self {
        let terms = bits_per_s.iter();
        let supply = hop.bandwidth_bits_per_s.map(float);
        Self {
            terms: terms
                .map(|(value, what)| Term::new(*value, what, costs::PACKET_BYTES.source))
                .collect(),
            supply: supply.map(|bits| (bits, Unit::BitsPerSecond.show(bits))),
            remedy: "A faster network, or more nodes.".into(),
            ..Self::new(name, Unit::BitsPerSecond)
        }
    }

    /// Cores for deliveries and pings, at the seconds that one of each takes. Without a limit where messages are of a
    /// kind that was not measured.
    pub(crate) fn processor(
        chain: &Chain,
        delivery_s: Cost,
        ping_s: Cost,
        supply: Option<(f64, String)>,
    ) -> Self {
        let traffic = &chain.traffic;
        let deliveries = traffic.deliveries_per_s(chain.connections) * delivery_s.value;
        let pings = traffic.pings_per_s() * ping_s.value;
        Self {
            terms: vec![
                Term::new(deliveries, "for deliveries", delivery_s.source),
                Term::new(pings, "for pings", ping_s.source),
            ],
            supply: supply.filter(|_| traffic.unmeasured().is_none()),
            ..Self::new("processor", Unit::Cores)
        }
    }

    fn need(&self, connections: f64) -> f64 {
        let fixed: f64 = self.fixed.iter().map(|(value, _, _)| value).sum();
        fixed
            + self
                .terms
                .iter()
                .map(|term| term.need(connections))
                .sum::<f64>()
    }

    pub(crate) fn resource(self, share: &Share) -> Resource {
        let sources: Vec<&'static str> = self
            .terms
            .iter()
            .map(|term| term.source)
            .chain(self.fixed.iter().map(|(_, _, source)| *source))
            .collect();
        let need = self.need(share.float());
        let need =
            Figure::new(self.name, need, self.unit, self.formula(share.connections)).from(&sources);
        let limit = self.supply.as_ref().map(|(supply, called)| {
            let a_node = self.most(*supply);
            Limit {
                connections: a_node.saturating_mul(share.active),
                effect: self.effect,
                formula: format!(
                    "{} a node fill {called}{}",
                    count(a_node),
                    times(share.active)
                ),
                sources: need.sources.clone(),
                remedy: self.remedy.clone(),
            }
        });
        Resource {
            name: self.name,
            need,
            limit,
        }
    }

    /// The most connections for which the need is within the supply. The need never falls, so halving finds it.
    fn most(&self, supply: f64) -> u64 {
        let (mut fits, mut fails) = (0, CONNECTIONS_MAX);
        if self.need(float(fails)) <= supply {
            return CONNECTIONS_MAX;
        }
        while fails - fits > 1 {
            let middle = fits.midpoint(fails);
            if self.need(float(middle)) <= supply {
                fits = middle;
            } else {
                fails = middle;
            }
        }
        fits
    }

    /// `26.4 MiB slots + 400,000 × (4.14 KiB socket + 99 B record) + min(…)`.
    fn formula(&self, connections: u64) -> String {
        let show = |value| self.unit.show(value);
        let mut parts: Vec<String> = self
            .fixed
            .iter()
            .map(|(value, how, _)| format!("{} {how}", show(*value)))
            .collect();
        let unbounded: Vec<String> = self
            .terms
            .iter()
            .filter(|term| term.at_most.is_none())
            .map(|term| format!("{} {}", small(self.unit, term.each), term.what))
            .collect();
        match unbounded.as_slice() {
            [] => {}
            [only] => parts.push(format!("{} × {only}", count(connections))),
            several => parts.push(format!(
                "{} × ({})",
                count(connections),
                several.join(" + ")
            )),
        }
        parts.extend(self.terms.iter().filter_map(|term| {
            let bound = term.at_most?;
            Some(format!(
                "min({} × {} {}, {})",
                count(connections),
                small(self.unit, term.each),
                term.what,
                show(bound)
            ))
        }));
        parts.join(" + ")
    }
}

/// A cost for one connection, in the small unit it is thought of in.
fn small(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Cores => format!("{} µs/s", significant(value * 1e6)),
        Unit::Bytes if value < 1_024.0 => format!("{} B", significant(value)),
        _ => unit.show(value),
    }
}
