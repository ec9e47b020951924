//! `revoke_token` and `invalidate_user_tokens`: tokens that count no more, and the end of the connections that were opened with them.

use super::super::Control;
use super::everywhere::{Everywhere, Merged, Results};
use super::fault::{Code, Fault};
use super::method::{Request, Scope};
use super::orders::{end_revoked, unix_now};
use super::reply::{Json, Reply};
use crate::auth::RevocationError;
use myriad_shard::{RevokedTokens, Users};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct RevokeToken<'a> {
    /// The token's id: its claim `jti`.
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(default)]
    expire_at: Option<u64>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct InvalidateUserTokens<'a> {
    #[serde(borrow)]
    user: Cow<'a, str>,
    #[serde(default)]
    issued_before: Option<u64>,
    #[serde(default)]
    expire_at: Option<u64>,
}

/// What is wrong with a field.
fn explain(field: &'static str) -> impl Fn(RevocationError) -> Fault {
    move |error| match error {
        RevocationError::Full => Fault::new(Code::LimitExceeded, error.to_string()),
        RevocationError::Name => Fault::bad(format!("field \"{field}\": {error}")),
        RevocationError::Over => Fault::bad(format!("field \"expire_at\": {error}")),
    }
}

impl<'a> Request<'a> for RevokeToken<'a> {
    const FORM: &'static str = r#"send {"uid": "the token's jti", "expire_at": when the token expires, in seconds since 1970}"#;

    fn scope(&self) -> Scope<'_> {
        Scope::Server
    }

    async fn answer(self, control: &Control) -> Reply {
        let until = self.expire_at.filter(|at| *at != 0);
        let revocations = control.tokens.revocations();
        let revoked = revocations.revoke_token(&self.uid, until);
        revoked.map_err(explain("uid"))?;
        let token = RevokedTokens::Id(self.uid.into());
        end_revoked(control, (Users::All, token)).await?;
        Ok(Json::empty())
    }
}

impl<'a> Everywhere<'a> for RevokeToken<'a> {
    fn merge(&self, _: &mut Results<'_>) -> Merged {
        Merged::Done
    }
}

impl<'a> Request<'a> for InvalidateUserTokens<'a> {
    const FORM: &'static str = r#"send {"user": "id", "issued_before": seconds since 1970}; without a time all tokens of now"#;

    fn scope(&self) -> Scope<'_> {
        Scope::Server
    }

    async fn answer(mut self, control: &Control) -> Reply {
        self.settle();
        let before = self.issued_before.unwrap_or_default();
        let until = self.expire_at.filter(|at| *at != 0);
        let revocations = control.tokens.revocations();
        let revoked = revocations.revoke_user(&self.user, before, until);
        revoked.map_err(explain("user"))?;
        let tokens = RevokedTokens::IssuedBefore(before);
        end_revoked(control, (Users::One(self.user.into()), tokens)).await?;
        Ok(Json::empty())
    }
}

impl<'a> Everywhere<'a> for InvalidateUserTokens<'a> {
    fn settle(&mut self) {
        // A token of this second may be older than this request, and nobody can tell.
        let before = self.issued_before.filter(|at| *at != 0);
        self.issued_before = Some(before.unwrap_or_else(|| unix_now() + 1));
    }

    fn merge(&self, _: &mut Results<'_>) -> Merged {
        Merged::Done
    }
}
