//! `subscribe`: subscribes clients that are connected.

use super::super::Control;
use super::everywhere::{Everywhere, Merged, Results};
use super::fault::Fault;
use super::history::Since;
use super::method::{Request, Scope};
use super::orders::{self, Overrides, Selection, information, payload, time_left};
use super::publication::{KEY_BYTES_MAX, options_of};
use super::reply::{Json, Reply};
use myriad_shard::{Deed, OptionOverrides, ServerSubscribe, SubscribeGrant};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Subscribe<'a> {
    #[serde(borrow, default)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(default)]
    expire_at: Option<i64>,
    #[serde(borrow, default)]
    info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    b64info: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    client: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    session: Option<Cow<'a, str>>,
    #[serde(default)]
    all_users: Option<bool>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    b64data: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    recover_since: Option<Since<'a>>,
    #[serde(default)]
    r#override: Option<Overrides>,
    /// Libraries from before `override` send these, if they are true.
    #[serde(default)]
    presence: Option<bool>,
    #[serde(default)]
    join_leave: Option<bool>,
    #[serde(default)]
    position: Option<bool>,
    #[serde(default)]
    recover: Option<bool>,
}

impl Subscribe<'_> {
    /// What is otherwise for these subscriptions.
    fn overrides(&self) -> OptionOverrides {
        let overrides = OptionOverrides::from(self.r#override.unwrap_or_default());
        let or = |value: Option<bool>, older: Option<bool>| value.or(older.filter(|on| *on));
        OptionOverrides {
            presence: or(overrides.presence, self.presence),
            join_leave: or(overrides.join_leave, self.join_leave),
            force_positioning: or(overrides.force_positioning, self.position),
            force_recovery: or(overrides.force_recovery, self.recover),
            ..overrides
        }
    }
}

impl<'a> Request<'a> for Subscribe<'a> {
    const FORM: &'static str = r#"send {"user": "id", "channel": "name"}"#;

    fn scope(&self) -> Scope<'_> {
        let is_named =
            |name: &Option<Cow<'_, str>>| name.as_ref().is_some_and(|name| !name.is_empty());
        let names_somebody = [&self.user, &self.client, &self.session]
            .into_iter()
            .any(is_named);
        // Everybody's clients are the server's: the users of other namespaces are among them.
        if self.all_users.unwrap_or_default() && !names_somebody {
            Scope::Server
        } else {
            Scope::channel(&self.channel)
        }
    }

    async fn answer(self, control: &Control) -> Reply {
        options_of(&control.namespaces.load(), &self.channel)?;
        let overrides = self.overrides();
        let since = self.recover_since.map(myriad_shard::Since::from);
        let epoch_bytes = since.as_ref().map_or(0, |since| since.epoch.len());
        if epoch_bytes > KEY_BYTES_MAX {
            return Err(Fault::bad(format!(
                "field \"recover_since.epoch\" has {epoch_bytes} bytes; send that of a position"
            )));
        }
        let wanted = ServerSubscribe {
            channel: self.channel.into(),
            grant: SubscribeGrant {
                expires_in: time_left(self.expire_at)?,
                info: information(self.info, self.b64info.as_deref())?,
                data: payload(self.data, self.b64data.as_deref())?,
                overrides,
                token: None,
            },
            since: since.map(|since| (since.offset, since.epoch)),
        };
        let selection = Selection {
            user: self.user,
            client: self.client,
            session: self.session,
            all_users: self.all_users,
            ..Selection::default()
        };
        if let Some(whose) = selection.whose()? {
            let deed = Deed::Subscribe(Box::new(wanted));
            let done = orders::carry_out(control, whose, deed).await?;
            orders::check_done(
                &done,
                "they have as many channels as a connection may, wait for as many answers, or cannot read the data",
            )?;
        }
        Ok(Json::empty())
    }
}

impl<'a> Everywhere<'a> for Subscribe<'a> {
    fn merge(&self, _: &mut Results<'_>) -> Merged {
        Merged::Done
    }
}
