//! `rpc`: calls of the server's own procedures. There is none.

use super::super::Control;
use super::fault::{Code, Fault};
use super::method::{Request, Scope};
use super::reply::Reply;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Debug, Deserialize)]
pub(super) struct Rpc<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    /// No `IgnoredAny`: a reader that looks for unknown fields takes that for one.
    #[serde(borrow, default, rename = "params")]
    _params: Option<&'a RawValue>,
}

impl<'a> Request<'a> for Rpc<'a> {
    const FORM: &'static str = r#"send {"method": "name", "params": any JSON}"#;

    fn scope(&self) -> Scope<'_> {
        Scope::Server
    }

    async fn answer(self, _control: &Control) -> Reply {
        let shown = &self.method[..self.method.floor_char_boundary(100)];
        Err(Fault::new(
            Code::NotFound,
            format!("there is no procedure {shown:?}: this server has none"),
        ))
    }
}
