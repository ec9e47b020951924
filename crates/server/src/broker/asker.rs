//! Questions that are answered by many messages each, over a connection of our own.
//!
//! The client library would end its own connection at headers that it cannot parse, and the messages of an answer have the headers that their
//! publishers wrote. The connection is made for the first question, and again for the first one after it was lost.

use super::direct::DirectAnswer;
use super::servers::FeedError;
use myriad_nats::Nats;
use myriad_nats::raw::{RawConnection, RawMessage};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

struct Question {
    subject: String,
    payload: Vec<u8>,
    answer: oneshot::Sender<Result<DirectAnswer, FeedError>>,
}

/// Where questions are left. The task that asks them ends with it.
#[derive(Debug)]
pub(super) struct Asker {
    questions: UnboundedSender<Question>,
}

impl Asker {
    /// Begins a task of the runtime that this is called in. The connection is named so.
    pub(super) fn new(nats: Nats, name: String) -> Self {
        let (questions, asked) = unbounded_channel();
        tokio::spawn(ask_all(nats, name, asked));
        Self { questions }
    }

    /// Asks, and waits for all messages of the answer.
    ///
    /// # Errors
    /// There is no answer, or none in time.
    pub(super) async fn ask(
        &self,
        subject: String,
        payload: Vec<u8>,
    ) -> Result<DirectAnswer, FeedError> {
        let (answer, answered) = oneshot::channel();
        let question = Question {
            subject,
            payload,
            answer,
        };
        self.questions.send(question).map_err(|_| FeedError::Cut)?;
        match timeout(TIMEOUT, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(FeedError::Cut),
            Err(_) => Err(FeedError::look(&"no answer in 5 s")),
        }
    }
}

async fn ask_all(nats: Nats, name: String, mut questions: UnboundedReceiver<Question>) {
    while let Some(first) = questions.recv().await {
        match nats.connect_raw(&name).await {
            Ok(connection) => Asking::new(connection).run(first, &mut questions).await,
            Err(error) => {
                let _ = first.answer.send(Err(FeedError::look(&error)));
            }
        }
    }
}

/// A question that is being answered.
struct UnderWay {
    received: DirectAnswer,
    answer: oneshot::Sender<Result<DirectAnswer, FeedError>>,
}

/// The questions of one connection.
struct Asking {
    connection: RawConnection,
    inbox: String,
    /// By the last token of the subject that is answered to.
    under_way: HashMap<u64, UnderWay>,
    serial: u64,
}

impl Asking {
    fn new(mut connection: RawConnection) -> Self {
        let inbox = connection.new_inbox();
        connection.subscribe(&format!("{inbox}.*"));
        Self {
            connection,
            inbox,
            under_way: HashMap::new(),
            serial: 0,
        }
    }

    /// Asks until the connection is lost: by that, whoever waits is told.
    async fn run(mut self, first: Question, questions: &mut UnboundedReceiver<Question>) {
        self.ask(first);
        loop {
            tokio::select! {
                biased;
                question = questions.recv() => match question {
                    Some(question) => self.ask(question),
                    None => return,
                },
                message = self.connection.next() => match message {
                    Ok(message) => self.handle_message(message),
                    Err(error) => {
                        tracing::debug!("the connection for questions is lost: {error}");
                        return;
                    }
                },
            }
        }
    }

    fn ask(&mut self, question: Question) {
        // Nobody waits any more for the answers to these.
        self.under_way.retain(|_, one| !one.answer.is_closed());
        self.serial += 1;
        let reply = format!("{}.{}", self.inbox, self.serial);
        let Question {
            subject,
            payload,
            answer,
        } = question;
        self.connection.publish(&subject, Some(&reply), &payload);
        let received = DirectAnswer::default();
        self.under_way
            .insert(self.serial, UnderWay { received, answer });
    }

    fn handle_message(&mut self, message: RawMessage) {
        let serial = message.subject.rsplit('.').next();
        let Some(serial) = serial.and_then(|serial| serial.parse().ok()) else {
            return;
        };
        let Some(one) = self.under_way.get_mut(&serial) else {
            return;
        };
        let taken = one.received.take(message);
        if matches!(taken, Ok(false)) {
            return;
        }
        if let Some(UnderWay { received, answer }) = self.under_way.remove(&serial) {
            let _ = answer.send(taken.map(|_| received));
        }
    }
}
