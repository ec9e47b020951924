//! What the nodes of a cluster ask each other, beside methods of the API: commands for a session that is connected to another node, and
//! revoked tokens. Also clients' questions about members, which other nodes have, too.

use super::Control;
use super::api::Method;
use super::api::everywhere::{answer_node, deadline, told, written};
use super::api::orders::end_revoked;
use super::api::presence::{counts_of_node, members_of_node, page_of_node};
use super::emulation::too_many_commands;
use super::error::Refusal;
use crate::auth::RevokedEntries;
use crate::nodes::{Answer, NodeAsk, Wanted, Whom};
use crate::shards::monotonic_now;
use axum::http::StatusCode;
use bytes::Bytes;
use myriad_shard::{EmulatedRefused, MembersKind, MembersPage, MembersQuestion};
use myriad_wire::centrifuge::{EmulationRequest, Encoding};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Commands for a session, in JSON or in protobuf.
const EMULATE_JSON: &str = "~emulate-json";
const EMULATE_PROTOBUF: &str = "~emulate-protobuf";
/// What who comes has missed: the tokens that are revoked, in answer, and the users who are here, in a round.
const MISSED: &str = "~missed";

/// What became of a session's commands.
const TAKEN: &[u8] = b"taken";
const BUSY: &[u8] = b"busy";

impl Answer for Control {
    async fn answer(&self, ask: NodeAsk) -> Option<Vec<u8>> {
        match &*ask.what {
            EMULATE_JSON => self.emulate_for_node(Encoding::Json, &ask.payload),
            EMULATE_PROTOBUF => self.emulate_for_node(Encoding::Protobuf, &ask.payload),
            MISSED => {
                let nodes = self.nodes.as_ref()?;
                self.mesh.begin_round(nodes.next_round());
                let revoked = self.tokens.revocations().entries();
                Some(serde_json::to_vec(&revoked).expect("names are text"))
            }
            method => {
                let method = Method::named(method)?;
                let request = str::from_utf8(&ask.payload).ok()?;
                let reply = answer_node(self, method, ask.seed, request).await;
                Some(written(&reply))
            }
        }
    }
}

/// Too many commands name no node.
fn too_many_unnamed() -> Refusal {
    Refusal::busy(
        "too many commands name no node; send the node of the answer to connect, or try again after a second",
    )
}

impl Control {
    /// Takes commands that another node was sent. Who sent them there may not know this node's name, but knows the session's.
    fn emulate_for_node(&self, encoding: Encoding, body: &[u8]) -> Option<Vec<u8>> {
        let request = EmulationRequest::decode(encoding, body).ok()?;
        let taken = self
            .mesh
            .emulate(self.mesh.node(), &request.session, &request.data);
        Some(match taken {
            Ok(()) => TAKEN.to_vec(),
            Err(EmulatedRefused::Busy) => BUSY.to_vec(),
            Err(EmulatedRefused::UnknownNode) => unreachable!("it is this node's name"),
        })
    }

    /// Brings commands to the node that they name, or to all if they name none.
    pub(super) async fn emulate_elsewhere(
        &self,
        node: &str,
        encoding: Encoding,
        body: Bytes,
    ) -> Result<(), Refusal> {
        let unknown = || {
            let message = "no such node is here; connect again";
            Refusal::new(StatusCode::NOT_FOUND, "path", message)
        };
        let nodes = self.nodes.as_ref().ok_or_else(unknown)?;
        let mut turn = None;
        let whom = match node {
            "" => {
                turn = nodes.unnamed.take(monotonic_now());
                if turn.is_none() {
                    nodes.counts.count_unnamed_refused();
                    return Err(too_many_unnamed());
                }
                Whom::Others
            }
            node if nodes.others().iter().any(|other| other == node) => Whom::One(node),
            _ => return Err(unknown()),
        };
        let wanted = Wanted {
            what: match encoding {
                Encoding::Json => EMULATE_JSON,
                Encoding::Protobuf => EMULATE_PROTOBUF,
            },
            seed: 0,
            payload: body,
        };
        let gathered = nodes.ask(whom, wanted, deadline()).await;
        drop(turn);
        let is_busy = gathered.answers.iter().any(|(_, answer)| answer == BUSY);
        if is_busy {
            return Err(too_many_commands());
        }
        if gathered.missing.is_empty() {
            return Ok(());
        }
        Err(Refusal::busy(
            "the node of this session did not answer; connect again if it does not do so in a few seconds",
        ))
    }

    /// Answers a client's question about members, for all other nodes.
    pub(crate) async fn answer_members(self: Arc<Self>, question: MembersQuestion) {
        let page = self.members_elsewhere(&question).await;
        self.mesh.answer_members(&question, page);
    }

    async fn members_elsewhere(&self, question: &MembersQuestion) -> MembersPage {
        let Some(nodes) = &self.nodes else {
            return MembersPage::default();
        };
        let channel = &*question.channel;
        let (method, payload) = match question.kind {
            MembersKind::Page {
                after, members_max, ..
            } => (
                Method::Presence,
                members_of_node(channel, after, members_max),
            ),
            MembersKind::Stats => (Method::PresenceStats, counts_of_node(channel)),
        };
        let wanted = Wanted {
            what: method.name(),
            seed: question.hasher.seed(),
            payload: payload.into(),
        };
        let gathered = nodes.ask(Whom::Others, wanted, deadline()).await;
        let mut page = MembersPage {
            is_partial: !gathered.missing.is_empty(),
            ..MembersPage::default()
        };
        for (node, answer) in &gathered.answers {
            let theirs = told(node, answer).and_then(|result| page_of_node(node, result));
            match theirs {
                Ok(theirs) => {
                    page.members.extend(theirs.members);
                    page.has_more |= theirs.has_more;
                    page.clients += theirs.clients;
                    page.users.extend(theirs.users);
                }
                Err(fault) => {
                    if fault.is_of_another_version() {
                        nodes.remark_other_version(node, fault.detail());
                    } else {
                        tracing::warn!("members of another node are missing: {}", fault.detail());
                    }
                    page.is_partial = true;
                }
            }
        }
        page
    }

    /// Asks every node that comes for what this one has missed, until the runtime ends. That node asks as well.
    pub(crate) async fn follow_newcomers(self: Arc<Self>, mut newcomers: mpsc::Receiver<String>) {
        while let Some(node) = newcomers.recv().await {
            let Some(nodes) = &self.nodes else { return };
            let wanted = Wanted {
                what: MISSED,
                seed: 0,
                payload: Bytes::new(),
            };
            let gathered = nodes.ask(Whom::One(&node), wanted, deadline()).await;
            for (node, answer) in gathered.answers {
                match serde_json::from_slice::<RevokedEntries>(&answer) {
                    Ok(revoked) => self.learn_revoked(revoked).await,
                    Err(error) => tracing::warn!(
                        "node {node} says which tokens are revoked, in a form of another version: {error}"
                    ),
                }
            }
        }
    }

    async fn learn_revoked(&self, revoked: RevokedEntries) {
        let learnt = self.tokens.revocations().learn(revoked);
        for revoked in learnt {
            if let Err(fault) = end_revoked(self, revoked).await {
                tracing::warn!(
                    "connections with revoked tokens may go on: {}",
                    fault.detail()
                );
            }
        }
    }
}
