//! `rpc`: the control plane answers it.

use super::Failure;
use super::publish::payload_of;
use crate::asks::Question;
use crate::shard::Shard;
use myriad_hub::Now;
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::RpcRequest;

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_rpc(
        &mut self,
        key: Key,
        id: u32,
        request: &RpcRequest<'_>,
        now: Now,
    ) -> Result<(), Failure> {
        let question = Question::Rpc {
            method: request.method.as_ref().into(),
            data: payload_of(request.data),
        };
        self.ask_control_plane(key, id, question, now)
    }
}
