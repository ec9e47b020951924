//! `refresh`: says when connections expire.

use super::super::Control;
use super::everywhere::{Everywhere, Merged, Results};
use super::method::{Request, Scope};
use super::orders::{self, Selection, information, time_left};
use super::reply::{Json, Reply};
use myriad_shard::{Deed, Refreshed};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Refresh<'a> {
    #[serde(borrow, default)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    client: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    session: Option<Cow<'a, str>>,
    #[serde(default)]
    all_users: Option<bool>,
    #[serde(default)]
    expired: Option<bool>,
    #[serde(default)]
    expire_at: Option<i64>,
    #[serde(borrow, default)]
    info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    b64info: Option<Cow<'a, str>>,
}

impl<'a> Request<'a> for Refresh<'a> {
    const FORM: &'static str = r#"send {"user": "id", "expire_at": seconds since 1970} or {"user": "id", "expired": true}"#;

    fn scope(&self) -> Scope<'_> {
        Scope::Server
    }

    async fn answer(self, control: &Control) -> Reply {
        let refreshed = if self.expired.unwrap_or_default() {
            Refreshed::Expired
        } else {
            Refreshed::For(time_left(self.expire_at)?)
        };
        let info = information(self.info, self.b64info.as_deref())?;
        let selection = Selection {
            user: self.user,
            client: self.client,
            session: self.session,
            all_users: self.all_users,
            ..Selection::default()
        };
        if let Some(whose) = selection.whose()? {
            let deed = Deed::Refresh { refreshed, info };
            orders::carry_out(control, whose, deed).await?;
        }
        Ok(Json::empty())
    }
}

impl<'a> Everywhere<'a> for Refresh<'a> {
    fn merge(&self, _: &mut Results<'_>) -> Merged {
        Merged::Done
    }
}
