//! Messages of flows in what terminals of HTTP get: an event, a line or a body may hold several.

use super::ledger::MessageKey;
use super::plan::FlowsPlan;
use serde_json::value::RawValue;

/// Messages that are looked for in one of them, so that a server cannot fill this machine's memory with marks.
const MESSAGES_MAX: usize = 65_536;

impl FlowsPlan {
    /// Adds the messages of flows in `bytes` to `keys`: those of its lines, where each is a message; those of its elements, if it
    /// is a JSON array; or else those that follow each other.
    pub(in crate::engine) fn recognise_all(
        &self,
        bytes: &[u8],
        run: u16,
        keys: &mut Vec<MessageKey>,
    ) {
        if self.are_lines {
            let lines = bytes.split(|byte| *byte == b'\n');
            return keys.extend(
                lines
                    .filter_map(|line| self.recognise(line, run))
                    .take(MESSAGES_MAX),
            );
        }
        let before = keys.len();
        if let Some(elements) = elements_of(bytes) {
            let elements = elements.iter().map(|element| element.get().as_bytes());
            keys.extend(
                elements
                    .filter_map(|element| self.recognise(element, run))
                    .take(MESSAGES_MAX),
            );
        }
        if keys.len() > before {
            return;
        }
        for (planned, flow) in self.flows.iter().zip(0..) {
            let marks = planned.place.find_all(bytes, run).into_iter();
            let own = marks.filter(|mark| usize::from(mark.flow) == flow);
            keys.extend(
                own.map(|mark| MessageKey {
                    flow,
                    number: mark.number,
                })
                .take(MESSAGES_MAX),
            );
        }
    }

    /// Which message of a flow this is; none if it is none.
    pub(super) fn recognise(&self, message: &[u8], run: u16) -> Option<MessageKey> {
        self.flows.iter().zip(0..).find_map(|(planned, flow)| {
            let mark = planned.place.find(message, run)?;
            let number = mark.number;
            (usize::from(mark.flow) == flow).then_some(MessageKey { flow, number })
        })
    }
}

/// The elements of a JSON array; none if this is none.
fn elements_of(bytes: &[u8]) -> Option<Vec<&RawValue>> {
    let is_array = bytes.trim_ascii_start().first() == Some(&b'[');
    is_array
        .then(|| serde_json::from_slice(bytes).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::flows::accounts::Accounts;
    use crate::engine::flows::groups::{GroupRule, Groups};
    use crate::engine::flows::mark::{Mark, MarkPlace};
    use crate::engine::flows::plan::{Audience, FlowPlan, Pace, Route};
    use crate::engine::flows::template::{Place, Template};
    use std::time::Duration;

    fn plan(are_lines: bool, places: Vec<MarkPlace>) -> FlowsPlan {
        let accounts = Accounts::default();
        let template = || Template::parse("${stamp}", Place::Flow, &accounts).expect("a template");
        let flows = places.into_iter().map(|place| FlowPlan {
            name: String::new(),
            pace: Pace::Rate(1.0),
            audience: Audience::Group,
            place,
            route: Route::Socket {
                template: template(),
                is_binary: false,
            },
        });
        FlowsPlan {
            opening: Vec::new(),
            heartbeat: None,
            replies: Vec::new(),
            are_lines,
            groups: Groups::deal(&GroupRule::Even(1), 1, &accounts, &[1]).expect("it fits"),
            channels: Vec::new(),
            flows: flows.collect(),
            settle: Duration::ZERO,
            accounts,
        }
    }

    fn numbers(plan: &FlowsPlan, bytes: &str) -> Vec<(usize, u64)> {
        let mut keys = Vec::new();
        plan.recognise_all(bytes.as_bytes(), 7, &mut keys);
        keys.iter().map(|key| (key.flow, key.number)).collect()
    }

    #[test]
    fn a_body_may_hold_several_messages() {
        let text = |flow, number| Mark::new(7, flow, number).text();
        let (one, two) = (text(0, 1), text(1, 2));
        let objects = [&one, &two, &one].map(|id| format!("{{\"id\":\"{id}\"}}"));
        let all = [(0, 1), (1, 2), (0, 1)];
        let json = || {
            vec![
                MarkPlace::Json("/id".to_owned()),
                MarkPlace::Json("/id".to_owned()),
            ]
        };
        let array = format!(" [{}]", objects.join(","));
        assert_eq!(numbers(&plan(false, json()), &array), all);
        assert_eq!(numbers(&plan(false, json()), &objects[1]), all[1..2]);
        assert_eq!(numbers(&plan(true, json()), &objects.join("\r\n")), all);
        assert_eq!(numbers(&plan(false, json()), "[]"), []);
        assert_eq!(numbers(&plan(false, json()), "[1,"), []);
        // One flow behind the other, each in its order.
        let anywhere = || vec![MarkPlace::Anywhere, MarkPlace::Anywhere];
        let behind = plan(false, anywhere());
        assert_eq!(
            numbers(&behind, &objects.concat()),
            [(0, 1), (0, 1), (1, 2)]
        );
        // A message that is an array itself.
        let pointer = plan(false, vec![MarkPlace::Json("/1/id".to_owned())]);
        assert_eq!(
            numbers(&pointer, &format!("[0,{{\"id\":\"{one}\"}}]")),
            [(0, 1)]
        );
    }
}
