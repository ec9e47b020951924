//! `rpc`: the control plane answers it.

use super::Failure;
use super::asks::Asking;
use super::publish::payload_of;
use super::verify::check_readable;
use crate::asks::Question;
use crate::shard::Shard;
use crate::transport::centrifuge::format_of;
use myriad_hub::{Now, Payload};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::RpcRequest;

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_rpc(
        &mut self,
        key: Key,
        id: u32,
        request: &RpcRequest<'_>,
        text: &[u8],
        now: Now,
    ) -> Result<(), Failure> {
        let asking = Asking {
            command: id,
            channel: None,
            text,
            question: Question::Rpc {
                method: request.method.as_ref().into(),
                data: payload_of(request.data),
            },
        };
        self.ask_control_plane(key, asking, now)
    }

    /// The application has answered.
    pub(super) fn answer_rpc(&mut self, key: Key, id: u32, data: &Payload) -> Result<(), Failure> {
        let format = format_of(self.hub.connection(key.index).transport());
        check_readable(format, Some(data))?;
        let data = data.told(format).unwrap_or_default();
        self.reply(key, |writer| writer.rpc(id, &data));
        Ok(())
    }
}
