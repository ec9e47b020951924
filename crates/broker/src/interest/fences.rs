//! Fences: what is stored in a channel behind its fence comes to this node.

use super::channel::Phase;
use super::{Interest, Task};
use std::sync::Arc;

impl<M> Interest<M> {
    pub(super) fn subscribe(&mut self, name: Arc<str>) {
        self.tasks.push_back(Task::Subscribe(Arc::clone(&name)));
        self.await_fence(name);
    }

    fn await_fence(&mut self, name: Arc<str>) {
        if let Some(channel) = self.channels.get(&name) {
            self.unfenced.push((name, channel.serial));
        }
    }

    /// One fence at a time: it serves all that was subscribed before.
    pub(super) fn fence(&mut self) {
        if self.fencing.is_none() && !self.unfenced.is_empty() && self.is_listening {
            self.fencing = Some(std::mem::take(&mut self.unfenced));
            self.tasks.push_back(Task::Fence);
        }
    }

    /// The log went up to here when all subscriptions before the fence were known.
    pub fn handle_fence(&mut self, last: u64) {
        let Some(fenced) = self.fencing.take() else {
            return;
        };
        let is_first = fenced.is_empty();
        let mut asked = Vec::with_capacity(fenced.len());
        for (name, serial) in fenced {
            if let Some(channel) = self.channels.get_mut(&name)
                && channel.phase == Phase::New
                && channel.serial == serial
            {
                channel.phase = Phase::Asked;
                channel.fence = last;
                self.fresh.push(Arc::clone(&name));
                asked.push(name);
            }
        }
        if is_first {
            self.ask(Vec::new(), last, false);
        }
        self.ask_all(asked, last, false);
        self.fence();
    }

    /// Asks again about channels that are new. The servers of a cluster may have told each other of a subscription after they had
    /// answered for its fence: then what was stored in between did not come. To be called after some seconds, again and again.
    pub fn look_at_new(&mut self) {
        self.look_at_denied();
        let fresh = std::mem::take(&mut self.fresh);
        let settled = std::mem::replace(&mut self.settled, fresh);
        if self.is_listening {
            self.ask_all(settled, 0, true);
        }
    }

    /// A channel waits for another fence.
    pub(super) fn renew(&mut self, name: &Arc<str>) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.phase = Phase::New;
            self.await_fence(Arc::clone(name));
            self.fence();
        }
    }
}
