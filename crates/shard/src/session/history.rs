//! `history`.

use super::granted::since;
use super::questions::Question;
use super::recovery::{BEHIND, largest_of};
use super::refused::Act;
use super::{Asked, Failure};
use crate::shard::Shard;
use crate::transport::centrifuge::format_of;
use myriad_hub::{Asker, DataForm, HistoryAnswer, Now, ReadHistory, Ticket};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{ErrorCode, HistoryRequest};

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_history(
        &mut self,
        key: Key,
        id: u32,
        request: &HistoryRequest<'_>,
        now: Now,
    ) -> Result<(), Failure> {
        let channel = &*request.channel;
        let (options, is_subscribed) = self.check_seen(key, channel)?;
        if !options.has_history() {
            let cause = "its namespace keeps no history (history_size, history_ttl)";
            return Err(Failure::Caused(ErrorCode::NotAvailable, cause));
        }
        self.check_may(key, Act::ReadHistory, options.history_read, is_subscribed)?;
        let starts_at_zero = request
            .since
            .as_ref()
            .is_some_and(|position| position.offset == 0);
        if request.reverse && starts_at_zero {
            let cause = "nothing is before offset 0, and it reads backwards from there";
            return Err(Failure::Caused(ErrorCode::BadRequest, cause));
        }
        self.check_new_name(key, channel, now)?;
        let most = self.settings.client.history_max_publication_limit;
        let limit = u32::try_from(request.limit).map_or(most, |limit| limit.min(most));
        let read = ReadHistory {
            channel: channel.into(),
            asker: Asker::Session(self.open_ticket(key, id)?),
            limit: Some(limit),
            since: request
                .since
                .as_ref()
                .map(|position| since(position.offset, &position.epoch)),
            reverse: request.reverse,
        };
        self.sessions.lines.begin_question(key, channel);
        let question = Question::History(Box::new(read));
        self.sessions.questions.push(key, question);
        Ok(())
    }

    /// The home has answered a client's question for history.
    pub(crate) fn handle_history_answer(
        &mut self,
        ticket: Ticket,
        answer: HistoryAnswer,
        now: Now,
    ) {
        let channel = self.sessions.questions.finish(ticket, None);
        if let Some(key) = self.close_ticket(ticket) {
            self.tell_history(key, ticket, answer, now);
        }
        self.end_question(ticket.connection, &channel, now);
    }

    fn tell_history(&mut self, key: Key, ticket: Ticket, answer: HistoryAnswer, now: Now) {
        match answer {
            HistoryAnswer::Unrecoverable => {
                let code = ErrorCode::UnrecoverablePosition;
                self.answer_error(key, ticket, || Asked::command("history", ""), code, now);
            }
            HistoryAnswer::Behind => {
                self.note_refused(key, || Asked::command("history", ""), BEHIND, now);
                self.tell_failure(key, ticket.command, BEHIND, now);
                self.finish_replies(key, now);
            }
            HistoryAnswer::Page { publications, .. } if !self.may_fit(key, &publications) => {
                let code = ErrorCode::LimitExceeded;
                self.answer_error(key, ticket, || Asked::command("history", ""), code, now);
            }
            HistoryAnswer::Page {
                position,
                mut publications,
            } => {
                self.leave_out_unreadable(key, &mut publications);
                let format = format_of(self.hub.connection(key.index).transport());
                let parts: Vec<_> = publications
                    .iter()
                    .map(|kept| kept.content.parts(format, DataForm::Plain, None))
                    .collect();
                let fields = publications
                    .iter()
                    .zip(&parts)
                    .map(|(kept, parts)| kept.content.fields(parts, kept.offset));
                let fits = self.reply_kept_if_it_fits(key, |writer| {
                    let epoch = position.epoch.as_str();
                    writer.history(ticket.command, fields, epoch, position.offset);
                    largest_of(&parts)
                });
                if !fits {
                    let code = ErrorCode::LimitExceeded;
                    return self.answer_error(
                        key,
                        ticket,
                        || Asked::command("history", ""),
                        code,
                        now,
                    );
                }
                self.finish_replies(key, now);
            }
        }
    }
}
