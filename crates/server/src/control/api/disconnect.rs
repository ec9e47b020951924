//! `disconnect`: ends connections.

use super::super::Control;
use super::everywhere::{Everywhere, Merged, Results};
use super::fault::Fault;
use super::method::{Request, Scope};
use super::orders::{self, Selection};
use super::reply::{Json, Reply};
use myriad_shard::{ApplicationClose, Deed};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The code where the request says nothing: clients stay away.
const FORCE_DISCONNECT: u32 = 3503;

/// The code where the request has an object without a code: the connection ends without a word, and clients come back.
const WITHOUT_A_WORD: u32 = 3000;

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Disconnect<'a> {
    #[serde(borrow, default)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    client: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    session: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    whitelist: Option<Vec<Cow<'a, str>>>,
    #[serde(default)]
    all_users: Option<bool>,
    #[serde(borrow, default)]
    disconnect: Option<Told<'a>>,
    /// So gocent 3 spells it, and always sends it.
    #[serde(borrow, default, rename = "Disconnect")]
    capital_disconnect: Option<Told<'a>>,
    /// So gocent 3 calls the whitelist.
    #[serde(borrow, default, rename = "ClientWhitelist")]
    client_whitelist: Option<Vec<Cow<'a, str>>>,
}

/// What clients are told.
#[derive(Debug, Deserialize, Serialize)]
struct Told<'a> {
    #[serde(default)]
    code: Option<u32>,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
    /// Older libraries send it; the code decides. No `IgnoredAny`: a reader that looks for unknown fields takes that for one.
    #[serde(borrow, default, rename = "reconnect", skip_serializing)]
    _reconnect: Option<&'a RawValue>,
}

impl<'a> Request<'a> for Disconnect<'a> {
    const FORM: &'static str =
        r#"send {"user": "id"}, and if you like "disconnect": {"code": 4000, "reason": "text"}"#;

    fn scope(&self) -> Scope<'_> {
        Scope::Server
    }

    async fn answer(self, control: &Control) -> Reply {
        // What gocent 3 sends in any case says nothing unless it has a code.
        let told = self.disconnect.as_ref().or_else(|| {
            let capital = self.capital_disconnect.as_ref();
            capital.filter(|told| told.code.is_some_and(|code| code != 0))
        });
        let (code, reason) = match told {
            Some(told) => {
                let code = told.code.filter(|code| *code != 0);
                (code.unwrap_or(WITHOUT_A_WORD), told.reason.as_deref())
            }
            None => (FORCE_DISCONNECT, None),
        };
        let close = ApplicationClose::new(code, reason.unwrap_or_default());
        let close = close.map_err(|error| Fault::bad(format!("field \"disconnect\": {error}")))?;
        let selection = Selection {
            user: self.user,
            client: self.client,
            session: self.session,
            whitelist: self.whitelist.or(self.client_whitelist),
            all_users: self.all_users,
        };
        if let Some(whose) = selection.whose()? {
            orders::carry_out(control, whose, Deed::Disconnect(close)).await?;
        }
        Ok(Json::empty())
    }
}

impl<'a> Everywhere<'a> for Disconnect<'a> {
    fn merge(&self, _: &mut Results<'_>) -> Merged {
        Merged::Done
    }
}
