//! What is a client's own in the head of its requests: variables in targets and headers, such as a token of its account.

use crate::engine::flows::accounts::Accounts;
use crate::engine::flows::template::{Place, Template, Values};
use crate::engine::plan::Plan;
use crate::random::Random;
use std::borrow::Cow;

/// Whether a text of a head may have variables, which each client fills in.
pub(crate) fn has_variables(text: &str) -> bool {
    text.contains("${")
}

impl Plan {
    /// Path and query of a terminal of the run.
    pub(crate) fn own_path(&self, target: usize, number: u64) -> Cow<'_, str> {
        let path = self.path(target, self.group_in_url(number));
        self.filled(path, Place::OwnPath, number)
    }

    /// The headers of a terminal of the run, beside the protocol's own.
    pub(crate) fn own_headers(&self, number: u64) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        self.headers.iter().map(move |(name, value)| {
            let value = Cow::Borrowed(value.as_str());
            (&**name, self.filled(value, Place::OwnHeader, number))
        })
    }

    /// A text in which a terminal's own values take the places of variables. Read anew for each connection: only scenarios with
    /// variables pay for it, a microsecond or two, and no connection keeps anything.
    fn filled<'a>(&self, text: Cow<'a, str>, place: Place, number: u64) -> Cow<'a, str> {
        if !self.has_own_heads || !has_variables(&text) {
            return text;
        }
        let none = Accounts::default();
        let values = match &self.flows {
            Some(flows) => flows.values_of(number),
            None => Values {
                terminal: number,
                ..Values::sample(&none)
            },
        };
        let template = Template::parse(&text, place, values.accounts).expect("checked");
        let mut random = Random::new(self.seed ^ number);
        let mut filled = Vec::new();
        template.write(&mut filled, &values, &mut random);
        // What an account has must not begin another header.
        let is_break = |c: char| matches!(c, '\r' | '\n' | '\0');
        let filled = String::from_utf8(filled).expect("no variable of a head is bytes");
        Cow::Owned(filled.replace(is_break, " "))
    }
}
