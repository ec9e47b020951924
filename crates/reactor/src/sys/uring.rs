//! The uring driver.

use super::Setup;
use crate::{Close, Completions, Reactor, SendOp, Socket, Token};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The uring driver.
#[derive(Debug)]
pub struct Uring {}

impl Uring {
    /// Makes the reactor; call it on the thread that will use it.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn new(setup: Setup) -> io::Result<Self> {
        let _ = setup;
        unimplemented!()
    }
}

impl Reactor for Uring {
    type Handle = OwnedFd;
    fn accept(&mut self, _accepting: bool) {}
    fn connect(&mut self, _: Token, _: Option<SocketAddr>, _: SocketAddr) -> io::Result<Socket> {
        unimplemented!()
    }
    fn register(&mut self, _: Socket, _: Token) {}
    fn send_batch(&mut self, _: &mut [SendOp<'_>]) {}
    fn notify_writable(&mut self, _: Socket, _: Token) {}
    fn shutdown(&mut self, _: Socket) {}
    fn close(&mut self, _: Socket, _: Token, _: Close) {}
    fn transfer(&mut self, _: Socket, _: Token) -> io::Result<OwnedFd> {
        unimplemented!()
    }
    fn wait(&mut self, _: Option<Duration>, _: &mut Completions) -> io::Result<()> {
        unimplemented!()
    }
    fn capacity(&self) -> usize {
        0
    }
}
