//! What everything that speaks to NATS needs: headers, subscriptions that do not end, and how the connection is.

use async_nats::connection::State;
use async_nats::{Client, HeaderMap, HeaderValue, Message, Subject, Subscriber};
use futures_util::StreamExt as _;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// Between two attempts to subscribe.
const RETRY: Duration = Duration::from_secs(1);

/// Whether messages reach the servers now, as far as this process knows.
pub(crate) fn is_connected(client: &Client) -> bool {
    client.connection_state() == State::Connected
}

/// How often a client has been connected. What was on its way meanwhile is lost.
pub(crate) fn connects_of(client: &Client) -> u64 {
    client.statistics().connects.load(Ordering::Relaxed)
}

/// The value of a message's header.
pub(crate) fn header<'m>(headers: Option<&'m HeaderMap>, name: &str) -> Option<&'m str> {
    headers?.get(name).map(HeaderValue::as_str)
}

/// Headers of these names and values.
pub(crate) fn headers<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in values {
        headers.insert(name, value);
    }
    headers
}

/// The messages of a subject, for ever: a subscription that ends is made again.
pub(crate) struct Messages {
    client: Client,
    subject: Subject,
    /// What they are, for the log.
    what: &'static str,
    subscriber: Subscriber,
}

impl Messages {
    /// Subscribes, and tries again until it is subscribed.
    pub(crate) async fn of(client: &Client, subject: String, what: &'static str) -> Self {
        let subject = Subject::from(subject);
        Self {
            subscriber: subscribe(client, &subject, what).await,
            client: client.clone(),
            subject,
            what,
        }
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Message {
        loop {
            if let Some(message) = self.subscriber.next().await {
                return message;
            }
            sleep(RETRY).await;
            self.subscriber = subscribe(&self.client, &self.subject, self.what).await;
        }
    }
}

async fn subscribe(client: &Client, subject: &Subject, what: &str) -> Subscriber {
    loop {
        match client.subscribe(subject.clone()).await {
            Ok(subscriber) => return subscriber,
            Err(error) => tracing::warn!("{what} cannot be heard: {error}"),
        }
        sleep(RETRY).await;
    }
}
