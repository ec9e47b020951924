//! A task that can be stopped for a while, as a process can by SIGSTOP: time goes on without it.

use super::cloud::lock;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Stops and continues the tasks of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Freezer(Arc<Mutex<Frozen>>);

#[derive(Debug, Default)]
struct Frozen {
    is_frozen: bool,
    waiting: Vec<Waker>,
}

impl Freezer {
    pub(super) fn freeze(&self) {
        lock(&self.0).is_frozen = true;
    }

    pub(super) fn thaw(&self) {
        let mut frozen = lock(&self.0);
        frozen.is_frozen = false;
        frozen.waiting.drain(..).for_each(Waker::wake);
    }

    /// A task of the node.
    pub(super) fn task<F: Future>(&self, future: F) -> Task<F> {
        Task {
            freezer: self.clone(),
            future: Box::pin(future),
        }
    }
}

/// A future that stands still while its node is frozen.
pub(super) struct Task<F> {
    freezer: Freezer,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut frozen = lock(&self.freezer.0);
        if frozen.is_frozen {
            frozen.waiting.push(context.waker().clone());
            return Poll::Pending;
        }
        drop(frozen);
        self.future.as_mut().poll(context)
    }
}
