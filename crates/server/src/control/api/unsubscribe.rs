//! `unsubscribe`: ends subscriptions.

use super::super::Control;
use super::everywhere::{Everywhere, Merged, Results};
use super::method::{Request, Scope};
use super::orders::{self, Selection};
use super::publication::options_of;
use super::reply::{Json, Reply};
use myriad_shard::Deed;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Unsubscribe<'a> {
    #[serde(borrow, default)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    channel: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    client: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    session: Option<Cow<'a, str>>,
    #[serde(default)]
    all_users: Option<bool>,
}

impl Unsubscribe<'_> {
    /// The channel; none for all of them.
    fn channel(&self) -> Option<&str> {
        self.channel.as_deref().filter(|name| !name.is_empty())
    }
}

impl<'a> Request<'a> for Unsubscribe<'a> {
    const FORM: &'static str = r#"send {"user": "id", "channel": "name"}; "" is every channel"#;

    fn scope(&self) -> Scope<'_> {
        self.channel().map_or(Scope::Server, Scope::channel)
    }

    async fn answer(self, control: &Control) -> Reply {
        if let Some(channel) = self.channel() {
            options_of(&control.namespaces.load(), channel)?;
        }
        let channel = self.channel().map(Into::into);
        let selection = Selection {
            user: self.user,
            client: self.client,
            session: self.session,
            all_users: self.all_users,
            ..Selection::default()
        };
        if let Some(whose) = selection.whose()? {
            orders::carry_out(control, whose, Deed::Unsubscribe(channel)).await?;
        }
        Ok(Json::empty())
    }
}

impl<'a> Everywhere<'a> for Unsubscribe<'a> {
    fn merge(&self, _: &mut Results<'_>) -> Merged {
        Merged::Done
    }
}
