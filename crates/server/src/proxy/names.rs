//! Looking up the names of applications' hosts.
//!
//! The system's resolver blocks a thread, for as long as a broken name server likes, also when the call that asked was given up
//! long ago. So few look-ups are under way, and the others wait as long as their calls have time.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Look-ups under way, each on a thread.
const LOOKUPS_MAX: usize = 4;

/// The system's resolver, or what a test has in its place.
#[derive(Debug)]
pub(super) struct Names<L> {
    lookups: Arc<Semaphore>,
    look_up: L,
}

/// Asks the system; it blocks.
pub(super) fn ask_system(host: &str) -> io::Result<Vec<SocketAddr>> {
    // Port 0 stands for the one of the endpoint.
    (host, 0).to_socket_addrs().map(Iterator::collect)
}

impl<L: Fn(&str) -> io::Result<Vec<SocketAddr>> + Copy + Send + Sync + 'static> Names<L> {
    pub(super) fn new(look_up: L) -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            look_up,
        }
    }
}

impl<L: Fn(&str) -> io::Result<Vec<SocketAddr>> + Copy + Send + Sync + 'static> Resolve
    for Names<L>
{
    fn resolve(&self, name: Name) -> Resolving {
        let (lookups, look_up) = (Arc::clone(&self.lookups), self.look_up);
        Box::pin(async move {
            let permit = lookups.acquire_owned().await?;
            let looked_up = tokio::task::spawn_blocking(move || {
                let found = look_up(name.as_str());
                // Only now: the thread is busy until here, whether anybody still waits or not.
                drop(permit);
                found
            });
            let addresses: Addrs = Box::new(looked_up.await??.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex};
    use std::task::Poll;

    static STARTED: AtomicUsize = AtomicUsize::new(0);
    static MAY_END: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn slow(_: &str) -> io::Result<Vec<SocketAddr>> {
        STARTED.fetch_add(1, Ordering::SeqCst);
        let (may_end, changed) = &MAY_END;
        let _ended = changed
            .wait_while(may_end.lock().unwrap(), |may_end| !*may_end)
            .unwrap();
        Ok(vec![([127, 0, 0, 1], 0).into()])
    }

    #[test]
    fn few_look_ups_are_under_way_although_nobody_waits_for_them() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let names = Names::new(slow);
            let name = || "app.example".parse::<Name>().unwrap();
            for _ in 0..10 {
                let mut given_up = names.resolve(name());
                poll_fn(|context| {
                    let _ = given_up.as_mut().poll(context);
                    Poll::Ready(())
                })
                .await;
            }
            let last = names.resolve(name());
            let (may_end, changed) = &MAY_END;
            assert!(STARTED.load(Ordering::SeqCst) <= LOOKUPS_MAX);
            *may_end.lock().unwrap() = true;
            changed.notify_all();
            assert_eq!(last.await.unwrap().count(), 1);
            assert!(STARTED.load(Ordering::SeqCst) <= LOOKUPS_MAX + 1);
        });
    }

    #[test]
    fn the_system_knows_the_machine_itself() {
        let found = ask_system("localhost").unwrap();
        assert!(found.iter().any(|address| address.ip().is_loopback()));
    }
}
