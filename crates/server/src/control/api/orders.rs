//! What requests about connections of users have in common: whose connections, and orders to shards.

use super::super::Control;
use super::asking;
use super::fault::{Code, Fault};
use super::publication::{binary, json};
use myriad_shard::{
    ClientId, Deed, InquiryAnswer, OptionOverrides, OrderDone, OrderRefused, Payload,
    RevokedTokens, Users, Whose,
};
use myriad_wire::centrifuge::json_without_line_breaks;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Bytes of a user's id.
pub(super) const USER_BYTES_MAX: usize = 255;

/// Clients in the field `whitelist`.
pub(super) const KEPT_MAX: usize = 1_000;

/// The fields that say whose connections are meant, as sent.
#[derive(Debug, Default)]
pub(super) struct Selection<'a> {
    pub(super) user: Option<Cow<'a, str>>,
    pub(super) client: Option<Cow<'a, str>>,
    pub(super) session: Option<Cow<'a, str>>,
    pub(super) whitelist: Option<Vec<Cow<'a, str>>>,
    pub(super) all_users: Option<bool>,
}

impl Selection<'_> {
    /// None if there can be no such connection: that is no error.
    pub(super) fn whose(self) -> Result<Option<Whose>, Fault> {
        let client = self.client.filter(|name| !name.is_empty());
        let session = self.session.filter(|name| !name.is_empty());
        let is_for_all = self.all_users.unwrap_or_default();
        let users = match self.user.as_deref() {
            // Whoever names a user does not mean everybody.
            None | Some("") if is_for_all => Users::All,
            Some("") => Users::Anonymous,
            Some(user) if user.len() > USER_BYTES_MAX => {
                return Err(Fault::bad(format!(
                    "field \"user\" has {} bytes; send at most {USER_BYTES_MAX}",
                    user.len()
                )));
            }
            Some(user) => Users::One(user.into()),
            None if client.is_some() || session.is_some() => Users::All,
            None => {
                return Err(Fault::bad(
                    r#"field "user" is missing; send a user's id, "" for anonymous clients, a "client", or "all_users": true"#,
                ));
            }
        };
        let kept = self.whitelist.unwrap_or_default();
        if kept.len() > KEPT_MAX {
            return Err(Fault::bad(format!(
                "field \"whitelist\" has {} clients; send at most {KEPT_MAX}",
                kept.len()
            )));
        }
        // A session is named as its connection is.
        let mut clients = [client, session].into_iter().flatten();
        let client = match clients.next() {
            None => None,
            Some(name) => match ClientId::parse(&name) {
                Some(id) if clients.all(|other| other == name) => Some(id),
                _ => return Ok(None),
            },
        };
        Ok(Some(Whose {
            users,
            client,
            kept: kept.iter().filter_map(|id| ClientId::parse(id)).collect(),
        }))
    }
}

/// Has an order carried out on the shards that may have its connections. Answers what they say, in their order.
pub(super) async fn carry_out(
    control: &Control,
    whose: Whose,
    deed: Deed,
) -> Result<Vec<OrderDone>, Fault> {
    let shards = control.mesh.shards_of(&whose);
    order(control, whose, deed, shards, Control::answers_deadline()).await
}

/// As [`carry_out`], on these shards.
pub(super) async fn order(
    control: &Control,
    whose: Whose,
    deed: Deed,
    shards: std::ops::Range<usize>,
    deadline: Instant,
) -> Result<Vec<OrderDone>, Fault> {
    let order = control.mesh.new_order(whose, deed);
    let order = order.map_err(|OrderRefused::Busy| {
        Fault::busy("too many requests about connections wait; send fewer, or retry later")
    })?;
    let wait = control.api.inquiries.begin();
    for shard in shards {
        control.mesh.order(shard, wait.ask(), Arc::clone(&order));
    }
    let answers = wait.until(deadline).await;
    let answers: Option<Vec<_>> = answers.into_iter().collect();
    let answers = answers.ok_or_else(Fault::unanswered)?.into_iter();
    // A shard that has ended has no connections.
    let done = answers.map(|answer| match answer {
        None => Ok(OrderDone::default()),
        Some(InquiryAnswer::Ordered(done)) => Ok(done),
        Some(other) => Err(asking::defective("an order", &other)),
    });
    done.collect()
}

/// Ends the connections that were opened with revoked tokens.
pub(in super::super) async fn end_revoked(
    control: &Control,
    (users, tokens): (Users, RevokedTokens),
) -> Result<(), Fault> {
    let whose = Whose {
        users,
        ..Whose::default()
    };
    carry_out(control, whose, Deed::EndRevoked(tokens)).await?;
    Ok(())
}

/// An error if an order could not be carried out for some connections.
pub(super) fn check_done(done: &[OrderDone], why: &str) -> Result<(), Fault> {
    let failed: u64 = done.iter().map(|done| done.failed).sum();
    if failed == 0 {
        return Ok(());
    }
    let all = failed + done.iter().map(|done| done.done).sum::<u64>();
    Err(Fault::new(
        Code::LimitExceeded,
        format!("{failed} of {all} connections were left out: {why}"),
    ))
}

/// Seconds since 1970.
pub(super) fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// The time until `expire_at`, in seconds since 1970; none if that is 0 or left out.
pub(super) fn time_left(expire_at: Option<i64>) -> Result<Option<Duration>, Fault> {
    let Some(at) = expire_at.filter(|at| *at != 0) else {
        return Ok(None);
    };
    let left = u64::try_from(at)
        .ok()
        .and_then(|at| at.checked_sub(unix_now()));
    let left = left.filter(|left| *left > 0).ok_or_else(|| {
        Fault::bad(format!(
            "field \"expire_at\" is {at}, which has passed; send seconds since 1970, or 0 for never"
        ))
    })?;
    Ok(Some(Duration::from_secs(left)))
}

/// Data for clients: `b64data` stands over `data`.
pub(super) fn payload(
    data: Option<&RawValue>,
    b64data: Option<&str>,
) -> Result<Option<Payload>, Fault> {
    match (data, b64data.filter(|encoded| !encoded.is_empty())) {
        (_, Some(encoded)) => binary(encoded).map(Some),
        (Some(data), None) => json(data).map(Some),
        (None, None) => Ok(None),
    }
}

/// What other clients are told: `b64info` stands over `info`.
pub(super) fn information(
    info: Option<&RawValue>,
    b64info: Option<&str>,
) -> Result<Option<Arc<[u8]>>, Fault> {
    let told = payload(info, b64info).map_err(|fault| fault.of_info())?;
    Ok(told.map(|told| match told {
        Payload::Json(text) => json_without_line_breaks(&text).as_bytes().into(),
        other => other.bytes().into(),
    }))
}

/// The field `override`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Overrides {
    presence: Option<Switch>,
    join_leave: Option<Switch>,
    force_push_join_leave: Option<Switch>,
    force_positioning: Option<Switch>,
    force_recovery: Option<Switch>,
}

/// An option with a value. Some libraries leave a false one out.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Switch {
    value: Option<bool>,
}

impl From<Overrides> for OptionOverrides {
    fn from(overrides: Overrides) -> Self {
        let value = |switch: Option<Switch>| switch.map(|switch| switch.value.unwrap_or_default());
        Self {
            presence: value(overrides.presence),
            join_leave: value(overrides.join_leave),
            force_push_join_leave: value(overrides.force_push_join_leave),
            force_positioning: value(overrides.force_positioning),
            force_recovery: value(overrides.force_recovery),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233-4455-8677-8899-aabbccddeeff";

    fn whose(selection: Selection<'_>) -> Option<Whose> {
        selection.whose().expect("a good request")
    }

    #[test]
    fn a_request_says_whose_connections_it_means() {
        let user = |user: &'static str| Selection {
            user: Some(user.into()),
            ..Selection::default()
        };
        assert_eq!(whose(user("42")).unwrap().users, Users::One("42".into()));
        assert_eq!(whose(user("")).unwrap().users, Users::Anonymous);
        let all = Selection {
            all_users: Some(true),
            ..user("")
        };
        assert_eq!(whose(all).unwrap(), Whose::default());
        let named = Selection {
            all_users: Some(true),
            ..user("42")
        };
        assert_eq!(whose(named).unwrap().users, Users::One("42".into()));
        let one = Selection {
            client: Some(ID.into()),
            session: Some("".into()),
            ..Selection::default()
        };
        let found = whose(one).unwrap();
        assert_eq!(
            (found.users, found.client),
            (Users::All, ClientId::parse(ID))
        );
        for (client, session) in [("x", ""), (ID, "x"), ("", "x")] {
            let nobody = Selection {
                client: Some(client.into()),
                session: Some(session.into()),
                ..user("42")
            };
            assert_eq!(whose(nobody), None, "{client} {session}");
        }
        let fault = Selection::default().whose().unwrap_err();
        assert!(fault.detail().contains("field \"user\" is missing"));
        let long = "x".repeat(USER_BYTES_MAX + 1);
        let long = Selection {
            user: Some(long.into()),
            ..Selection::default()
        };
        assert!(long.whose().unwrap_err().detail().contains("256 bytes"));
    }

    #[test]
    fn an_expiry_is_never_or_in_the_future() {
        assert_eq!(time_left(None).unwrap(), None);
        assert_eq!(time_left(Some(0)).unwrap(), None);
        let soon = i64::try_from(unix_now() + 100).unwrap();
        assert!(time_left(Some(soon)).unwrap() <= Some(Duration::from_secs(100)));
        for past in [-1, 1, soon - 200] {
            let fault = time_left(Some(past)).unwrap_err();
            assert!(fault.detail().contains("has passed"), "{fault:?}");
        }
    }
}
