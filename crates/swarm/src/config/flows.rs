//! Messages that clients send by a schedule, and who must get them.

use super::Config;
use crate::config_error::ConfigError;
use crate::engine::flows::groups::{GroupRule, Groups};
use crate::engine::flows::mark::{FLOWS_MAX, MarkPlace};
use crate::engine::flows::plan::{Audience, FlowPlan, FlowsPlan};
use crate::engine::flows::template::{Template, TemplateError};
use std::sync::Arc;
use std::time::Duration;

/// Most messages that a client says when it opens.
const OPENING_MAX: usize = 16;

/// The flows of a run, and what belongs to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Flows {
    /// What each client says when it opens: templates.
    pub opening: Vec<String>,
    /// How clients are dealt out to groups.
    pub groups: GroupRule,
    /// At most 16.
    pub flows: Vec<Flow>,
    /// Time between the end of connecting and the first message.
    pub warmup: Duration,
}

/// Messages of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name in the report.
    pub name: String,
    /// Messages a second over the whole crowd.
    pub rate_per_s: f64,
    /// The template of a message.
    pub send: String,
    /// Whether it is sent as a binary message.
    pub is_binary: bool,
    /// Who must receive it.
    pub audience: Audience,
    /// Where the stamp is in what comes back.
    pub stamp: StampPlace,
}

/// Where a stamp is in what comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StampPlace {
    /// Anywhere, as a text.
    Anywhere,
    /// A JSON pointer.
    Json(String),
    /// A regular expression: its first group, or the whole match.
    Pattern(String),
    /// A byte.
    Offset(usize),
}

/// A flow that cannot be planned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FlowError {
    /// There are too many.
    #[error("{0} flows are given; {FLOWS_MAX} is the most")]
    Count(usize),
    /// Clients say too much.
    #[error("{0} messages are given; {OPENING_MAX} is the most")]
    Opening(usize),
    /// The groups do not fit the crowd.
    #[error(
        "clients cannot be dealt out to these groups; give 1 to {0} groups, or sizes that add up to the {0} clients"
    )]
    Groups(u64),
    /// A rate of zero, or too high.
    #[error("{0}/s is out of range; give more than 0 and at most 10m/s")]
    Rate(f64),
    /// A template that cannot be filled in.
    #[error("{0}")]
    Template(TemplateError),
    /// A regular expression that is none, and why.
    #[error("this is no regular expression: {0}")]
    Pattern(String),
    /// A JSON pointer without its slash.
    #[error("'{0}' is no JSON pointer; it begins with a slash, such as /data/id")]
    Pointer(String),
    /// Bytes in a text message.
    #[error("${{stamp:bytes}} may be no text; write binary = true")]
    Bytes,
    /// Beside something that flows do not go with.
    #[error("flows do not go with {0}; leave one of them out")]
    With(&'static str),
}

impl Config {
    /// The flows as threads need them.
    pub(super) fn plan_flows(&self) -> Result<Option<Arc<FlowsPlan>>, ConfigError> {
        let Some(flows) = &self.flows else {
            return Ok(None);
        };
        self.check_flows(flows)?;
        let at = |key: &str| {
            let key = key.to_owned();
            move |error| ConfigError::Flow(key.clone(), error)
        };
        let connections = u32::try_from(self.connections).unwrap_or(u32::MAX);
        let groups = Groups::deal(&flows.groups, connections)
            .ok_or(FlowError::Groups(self.connections))
            .map_err(at("groups"))?;
        let opening = flows.opening.iter().zip(0..).map(|(text, index)| {
            let template = Template::of_opening(text).map_err(FlowError::Template);
            template.map_err(at(&format!("opening.send[{index}]")))
        });
        let planned = flows.flows.iter().zip(0..).map(|(flow, index)| {
            let at = |key: &str, error| ConfigError::Flow(format!("flows[{index}].{key}"), error);
            plan_flow(flow).map_err(|(key, error)| at(key, error))
        });
        Ok(Some(Arc::new(FlowsPlan {
            opening: opening.collect::<Result<_, _>>()?,
            groups,
            flows: planned.collect::<Result<_, _>>()?,
            settle: self.settle,
        })))
    }

    fn check_flows(&self, flows: &Flows) -> Result<(), ConfigError> {
        let at = |key: &str, error| Err(ConfigError::Flow(key.to_owned(), error));
        if flows.flows.len() > FLOWS_MAX {
            return at("flows", FlowError::Count(flows.flows.len()));
        }
        if flows.opening.len() > OPENING_MAX {
            return at("opening.send", FlowError::Opening(flows.opening.len()));
        }
        if self.protocol != crate::protocol::Protocol::Raw {
            return at("terminals.protocol", FlowError::With("a protocol but raw"));
        }
        if self.churn_per_s.is_some() {
            return at("churn", FlowError::With("churn"));
        }
        if self.echo.is_some() {
            return at("echo", FlowError::With("echo"));
        }
        self.check_warmup(flows.warmup)
    }
}

fn plan_flow(flow: &Flow) -> Result<FlowPlan, (&'static str, FlowError)> {
    if !(flow.rate_per_s > 0.0 && flow.rate_per_s <= super::LOAD_RATE_MAX) {
        return Err(("rate", FlowError::Rate(flow.rate_per_s)));
    }
    let template = Template::of_flow(&flow.send);
    let template = template.map_err(|error| ("send", FlowError::Template(error)))?;
    if template.has_bytes() && !flow.is_binary {
        return Err(("send", FlowError::Bytes));
    }
    let place = match &flow.stamp {
        StampPlace::Anywhere => MarkPlace::Anywhere,
        StampPlace::Offset(offset) => MarkPlace::Offset(*offset),
        StampPlace::Json(pointer) if pointer.starts_with('/') => MarkPlace::Json(pointer.clone()),
        StampPlace::Json(pointer) => {
            return Err(("stamp-json", FlowError::Pointer(pointer.clone())));
        }
        StampPlace::Pattern(pattern) => match regex::bytes::Regex::new(pattern) {
            Ok(pattern) => MarkPlace::Pattern(Box::new(pattern)),
            Err(error) => {
                let said = error.to_string();
                return Err(("stamp-regex", FlowError::Pattern(said)));
            }
        },
    };
    Ok(FlowPlan {
        name: flow.name.clone(),
        rate_per_s: flow.rate_per_s,
        template,
        is_binary: flow.is_binary,
        audience: flow.audience,
        place,
    })
}
