//! A plan as text: each number with its formula, and its sources numbered at the end.

use super::figure::Figure;
use super::resource::{Limit, Resource};
use super::scale::ScaleOut;
use super::{HopPlan, Plan};
use myriad_doctor::Effect;
use myriad_layout::{Column, Paint, Table, WIDTH_MAX, wrapped};
use myriad_units::{count, counted};
use std::fmt::Write;

/// Fewest columns that lines are wrapped to.
const WIDTH_MIN: usize = 40;
/// Where a table of figures begins, and where their formulas do.
const INDENT: usize = 2;
const FORMULA_INDENT: usize = 6;

/// The whole plan, in lines of at most `width` columns and never more than [`WIDTH_MAX`]. Lines end with a line feed.
#[must_use]
pub fn render(plan: &Plan, width: usize) -> String {
    let mut page = Page {
        text: String::new(),
        width: width.clamp(WIDTH_MIN, WIDTH_MAX),
        sources: Vec::new(),
    };
    page.verdict(plan);
    page.line("");
    page.line("Traffic");
    let mut table = figures();
    for figure in &plan.traffic {
        page.figure(&mut table, figure);
    }
    page.table(&table);
    for (index, hop) in plan.hops.iter().enumerate() {
        page.hop(index + 1, hop);
    }
    for scale in &plan.scale_out {
        page.scale_out(scale);
    }
    page.sources();
    page.text
}

/// A table of names and figures; all of them have the same columns.
fn figures() -> Table {
    Table::new(&[Column::TEXT.at_least(28), Column::NUMBER.at_least(14)])
}

struct Page {
    text: String,
    width: usize,
    sources: Vec<&'static str>,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Text after so many spaces; its further lines are two deeper, so that each figure still begins a line.
    fn folded(&mut self, indent: usize, text: &str) {
        for line in self.folded_lines(indent, text) {
            self.line(&line);
        }
    }

    fn folded_lines(&self, indent: usize, text: &str) -> Vec<String> {
        let lines = wrapped(text, self.width - indent - 2)
            .into_iter()
            .enumerate();
        lines
            .map(|(index, line)| {
                let deeper = if index == 0 { indent } else { indent + 2 };
                format!("{:deeper$}{line}", "")
            })
            .collect()
    }

    /// A formula below the last row of a table.
    fn note(&self, table: &mut Table, text: &str) {
        for line in self.folded_lines(FORMULA_INDENT, text) {
            table.note(line);
        }
    }

    fn table(&mut self, table: &Table) {
        let drawn = table.draw(INDENT, self.width, Paint::Plain);
        self.text.push_str(&drawn);
    }

    fn verdict(&mut self, plan: &Plan) {
        let wanted = with_clients(plan.connections, plan.clients);
        let verdict = if plan.carries {
            "carries"
        } else {
            "does NOT carry"
        };
        self.folded(0, &format!("The chain {verdict} {wanted}."));
        match &plan.weakest {
            None => self.line("Nothing we know of limits it: give memory=, cores=, bandwidth=."),
            Some(weakest) => {
                let told = format!(
                    "Its weakest hop is {} ({}), limited by {}: at most {}.",
                    weakest.hop,
                    weakest.kind,
                    weakest.resource,
                    with_clients(weakest.connections, weakest.clients)
                );
                self.folded(0, &told);
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
        let head = format!(
            "Hop {number}: {}, {}{spare}, {} on each",
            hop.kind,
            counted(hop.nodes, "node"),
            counted(hop.connections_a_node, "connection")
        );
        self.folded(0, &head);
        let mut table = figures();
        for resource in &hop.resources {
            self.resource(&mut table, resource);
        }
        self.table(&table);
        for remark in &hop.remarks {
            self.folded(2, &format!("Note: {remark}"));
        }
    }

    fn resource(&mut self, table: &mut Table, resource: &Resource) {
        self.figure(table, &resource.need);
        if let Some(limit) = &resource.limit {
            self.limit(table, limit);
        }
    }

    fn figure(&mut self, table: &mut Table, figure: &Figure) {
        let marks = self.marks(&figure.sources);
        table.row([figure.name.to_owned(), figure.shown()]);
        self.note(table, &format!("= {}{marks}", figure.formula));
    }

    fn limit(&mut self, table: &mut Table, limit: &Limit) {
        let marks = self.marks(&limit.sources);
        let word = match limit.effect {
            Effect::Stops => "at most",
            Effect::Degrades | Effect::DelaysBursts | Effect::CutsMassCloses => "slower above",
        };
        let told = format!(
            "{word} {}: {}{marks}",
            counted(limit.connections, "connection"),
            limit.formula
        );
        self.note(table, &told);
    }

    fn scale_out(&mut self, scale: &ScaleOut) {
        self.line("");
        self.line(&format!(
            "Scaled out to {}",
            with_clients(scale.connections, scale.clients)
        ));
        let mut table = figures();
        self.figure(&mut table, &scale.regions);
        for hop in &scale.hops {
            let nodes = match (hop.nodes, hop.nodes_a_region) {
                (Some(nodes), Some(a_region)) => {
                    format!("{}, {} a region", counted(nodes, "node"), count(a_region))
                }
                _ => "not with such nodes".to_owned(),
            };
            table.row([hop.kind.to_owned(), nodes]);
            self.note(&mut table, &format!("= {}", hop.formula));
        }
        for figure in &scale.broker {
            self.figure(&mut table, figure);
        }
        self.table(&table);
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
