//! A plan as text: each number with its formula, and its sources numbered at the end.

use super::figure::Figure;
use super::resource::{Limit, Resource};
use super::scale::ScaleOut;
use super::{HopPlan, Plan};
use myriad_doctor::Effect;
use myriad_layout::wrapped;
use myriad_units::{count, counted};
use std::fmt::Write;

/// Columns of a plan, as of doctor's report.
const WIDTH: usize = 100;

/// The whole plan; lines end with a line feed.
#[must_use]
pub fn render(plan: &Plan) -> String {
    let mut page = Page::default();
    page.verdict(plan);
    page.line("");
    page.line("Traffic");
    for figure in &plan.traffic {
        page.figure(figure);
    }
    for (index, hop) in plan.hops.iter().enumerate() {
        page.hop(index + 1, hop);
    }
    for scale in &plan.scale_out {
        page.scale_out(scale);
    }
    page.sources();
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
    sources: Vec<&'static str>,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Text after so many spaces; its further lines are two deeper, so that each figure still begins a line.
    fn folded(&mut self, indent: usize, text: &str) {
        for (index, line) in wrapped(text, WIDTH - indent - 2).iter().enumerate() {
            let deeper = if index == 0 { indent } else { indent + 2 };
            self.line(&format!("{:deeper$}{line}", ""));
        }
    }

    fn verdict(&mut self, plan: &Plan) {
        let wanted = with_clients(plan.connections, plan.terminals);
        let verdict = if plan.carries {
            "carries"
        } else {
            "does NOT carry"
        };
        self.line(&format!("The chain {verdict} {wanted}."));
        match &plan.weakest {
            None => self.line("Nothing we know of limits it: give memory=, cores=, bandwidth=."),
            Some(weakest) => {
                let told = format!(
                    "Its weakest hop is {} ({}), limited by {}: at most {}.",
                    weakest.hop,
                    weakest.kind,
                    weakest.resource,
                    with_clients(weakest.connections, weakest.terminals)
                );
                self.line(&told);
                self.folded(0, &format!("To get further: {}", weakest.remedy));
            }
        }
    }

    fn hop(&mut self, number: usize, hop: &HopPlan) {
        self.line("");
        let spare = match hop.spare {
            0 => String::new(),
            spare => format!(", {} of them spare", count(spare)),
        };
        self.line(&format!(
            "Hop {number}: {}, {}{spare}, {} on each",
            hop.kind,
            counted(hop.nodes, "node"),
            counted(hop.connections_a_node, "connection")
        ));
        for resource in &hop.resources {
            self.resource(resource);
        }
        for remark in &hop.remarks {
            self.folded(2, &format!("Note: {remark}"));
        }
    }

    fn resource(&mut self, resource: &Resource) {
        self.figure(&resource.need);
        if let Some(limit) = &resource.limit {
            self.limit(limit);
        }
    }

    fn figure(&mut self, figure: &Figure) {
        let marks = self.marks(&figure.sources);
        self.line(&format!("  {:<28} {}", figure.name, figure.shown()));
        self.folded(6, &format!("= {}{marks}", figure.formula));
    }

    fn limit(&mut self, limit: &Limit) {
        let marks = self.marks(&limit.sources);
        let word = match limit.effect {
            Effect::Stops => "at most",
            Effect::Degrades | Effect::DelaysBursts | Effect::CutsMassCloses => "slower above",
        };
        let told = format!(
            "{word} {} connections: {}{marks}",
            count(limit.connections),
            limit.formula
        );
        self.folded(6, &told);
    }

    fn scale_out(&mut self, scale: &ScaleOut) {
        self.line("");
        self.line(&format!(
            "Scaled out to {}",
            with_clients(scale.connections, scale.terminals)
        ));
        self.figure(&scale.regions);
        for hop in &scale.hops {
            let nodes = match (hop.nodes, hop.nodes_a_region) {
                (Some(nodes), Some(a_region)) => {
                    format!("{} nodes, {} a region", count(nodes), count(a_region))
                }
                _ => "not with such nodes".to_owned(),
            };
            self.line(&format!("  {:<28} {nodes}", hop.kind));
            self.folded(6, &format!("= {}", hop.formula));
        }
        for figure in &scale.broker {
            self.figure(figure);
        }
    }

    /// ` [1, 4]`, numbered in the order of first use.
    fn marks(&mut self, sources: &[&'static str]) -> String {
        let mut marks = String::new();
        for source in sources {
            let known = self.sources.iter().position(|known| known == source);
            let index = known.unwrap_or_else(|| {
                self.sources.push(source);
                self.sources.len() - 1
            });
            let separator = if marks.is_empty() { " [" } else { ", " };
            write!(marks, "{separator}{}", index + 1).expect("a string takes everything");
        }
        if !marks.is_empty() {
            marks.push(']');
        }
        marks
    }

    fn sources(&mut self) {
        self.line("");
        self.line("Sources");
        for index in 0..self.sources.len() {
            let source = format!("[{}] {}", index + 1, self.sources[index]);
            self.folded(2, &source);
        }
    }
}

/// Connections, and the clients that open them where a client opens several.
fn with_clients(connections: u64, clients: u64) -> String {
    let shown = counted(connections, "connection");
    if connections == clients {
        shown
    } else {
        format!("{shown} ({})", counted(clients, "client"))
    }
}
