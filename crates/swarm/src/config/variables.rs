//! Variables in texts that no flow has: which have a value there, and which never will.

use super::Config;
use crate::config_error::ConfigError;
use crate::engine::flows::accounts::Accounts;
use crate::engine::flows::template::{Place, Template};
use crate::engine::own_head::has_variables;

impl Config {
    /// Refuses a variable that no client can fill in: it would be sent as it is.
    pub(super) fn check_variables(&self) -> Result<(), ConfigError> {
        let none = Accounts::default();
        let accounts = self.flows.as_ref().map_or(&none, |flows| &flows.accounts);
        let targets = self.targets.iter();
        let targets = targets.map(|target| ("targets", &target.path, Place::OwnPath));
        let headers = self.headers.iter();
        let headers = headers.map(|(_, value)| ("--header", value, Place::OwnHeader));
        for (option, text, place) in targets.chain(headers) {
            Template::parse(text, place, accounts)
                .map_err(|error| ConfigError::Variable(option, error))?;
        }
        let refused = self.fixed_texts().find_map(|(option, text)| {
            let at = text.find("${")?;
            let end = text[at..].find('}').map_or(text.len(), |end| at + end + 1);
            Some(ConfigError::NoVariables(option, text[at..end].to_owned()))
        });
        refused.map_or(Ok(()), Err)
    }

    /// Texts that are the same for all clients, each with its option.
    fn fixed_texts(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let publish = self.publish.iter().flat_map(|publish| &publish.endpoints);
        let requests = self.requests.iter().flat_map(|given| &given.endpoints);
        let body = self.request_body.iter();
        let tokens = self.tokens.iter();
        body.map(|body| ("--request-body", body))
            .chain(tokens.map(|token| ("--token", token)))
            .chain(publish.map(|endpoint| ("--publish", &endpoint.path)))
            .chain(requests.map(|endpoint| ("--request", &endpoint.path)))
            .filter(|(_, text)| has_variables(text))
    }

    /// Whether clients have targets or headers of their own.
    pub(super) fn has_own_heads(&self) -> bool {
        let paths = self.targets.iter().map(|target| &target.path);
        let values = self.headers.iter().map(|(_, value)| value);
        paths.chain(values).any(|text| has_variables(text))
    }
}
