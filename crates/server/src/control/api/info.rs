//! `info`: how much there is on this server.

use super::super::Control;
use super::asking;
use super::everywhere::{self, Everywhere, Merged, Results};
use super::fault::Fault;
use super::json::push_string;
use super::method::{Request, Scope};
use super::reply::{Json, Reply};
use myriad_shard::{Figures, Inquiry, InquiryAnswer, UserHasher};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::fmt::Write;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::{Instant as Deadline, timeout_at};

/// How old a result may be: shards walk over all their sessions for one.
const AGE_MAX: Duration = Duration::from_secs(1);

/// No field.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Info {}

/// The last result, and what does not change.
#[derive(Debug)]
pub(super) struct Node {
    started: Instant,
    last: Mutex<Option<(Instant, Json)>>,
}

impl Node {
    /// A node that starts now.
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            last: Mutex::default(),
        }
    }
}

impl<'a> Request<'a> for Info {
    const FORM: &'static str = "send {}";

    fn scope(&self) -> Scope<'_> {
        Scope::Server
    }

    async fn answer(self, control: &Control) -> Reply {
        let deadline = Control::answers_deadline();
        // Whoever asks meanwhile waits for the same result, but not for one attempt after the other.
        let last = timeout_at(deadline, control.api.node.last.lock()).await;
        let mut last = last.map_err(|_| Fault::unanswered())?;
        if Deadline::now() >= deadline {
            return Err(Fault::unanswered());
        }
        if let Some((written_at, json)) = &*last
            && written_at.elapsed() < AGE_MAX
        {
            return Ok(json.clone());
        }
        let json = result(control, &figures(control, deadline).await?);
        *last = Some((Instant::now(), json.clone()));
        Ok(json)
    }
}

/// Figures of nodes.
#[derive(Deserialize)]
struct Nodes<'a> {
    #[serde(borrow)]
    nodes: Vec<&'a RawValue>,
}

impl<'a> Everywhere<'a> for Info {
    fn merge(&self, results: &mut Results<'_>) -> Merged {
        let all: Vec<Nodes<'_>> = results.read();
        let nodes = all.iter().flat_map(|one| &one.nodes);
        let nodes: Vec<_> = nodes.map(|node| node.get()).collect();
        Merged::List(Ok(Json(format!(r#"{{"nodes":[{}]}}"#, nodes.join(",")))))
    }
}

/// The figures of all shards, with each user once.
async fn figures(control: &Control, deadline: Deadline) -> Result<Figures, Fault> {
    let hasher = UserHasher::new(everywhere::seed());
    let answers = asking::every_shard(control, &Inquiry::Figures { hasher }, deadline).await?;
    let (mut sum, mut users) = (Figures::default(), HashSet::new());
    for answer in answers {
        let InquiryAnswer::Figures(figures) = answer else {
            return Err(asking::defective("figures", &answer));
        };
        sum.clients += figures.clients;
        sum.subscriptions += figures.subscriptions;
        sum.channels += figures.channels;
        users.extend(figures.users);
    }
    sum.users = users.into_iter().collect();
    Ok(sum)
}

fn result(control: &Control, figures: &Figures) -> Json {
    let uname = rustix::system::uname();
    let mut json = String::from(r#"{"nodes":[{"uid":"#);
    push_string(control.mesh.node(), &mut json);
    json.push_str(r#","name":"#);
    push_string(&uname.nodename().to_string_lossy(), &mut json);
    json.push_str(r#","version":"#);
    push_string(env!("CARGO_PKG_VERSION"), &mut json);
    write!(
        json,
        r#","num_clients":{},"num_users":{},"num_subs":{},"num_channels":{},"uptime":{}}}]}}"#,
        figures.clients,
        figures.users.len(),
        figures.subscriptions,
        figures.channels,
        control.api.node.started.elapsed().as_secs(),
    )
    .expect("a String takes everything");
    Json(json)
}
