//! Watches the files of certificates, as certbot and cert-manager replace them.
//!
//! inotify sees files that change, but not the symbolic link some folders above that Kubernetes replaces. So the server looks at the
//! files, which costs a few system calls.

use super::{LoadFaults, Loaded, Running, Shown, Sources};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often files are looked at. A change counts when it has stood for one look: a pair is written one file after the other.
const INTERVAL: Duration = Duration::from_secs(2);

/// Days before the end of a certificate from which on a line a day says so.
const WARNING_DAYS: i64 = 14;
const HOUR_S: i64 = 60 * 60;
const DAY_S: i64 = 24 * HOUR_S;

/// What changes when a file is replaced or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
    /// Of its owner and rights as well: a file may become readable.
    status_changed: (i64, i64),
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
            status_changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Of all files, in their order; none for one that is not there.
pub(super) type Marks = Vec<Option<Mark>>;

pub(super) fn marks(sources: &Sources) -> Marks {
    sources.paths().map(|path| Mark::of(&path)).collect()
}

/// Files that could not be used, and when they were read.
struct Refused {
    marks: Marks,
    faults: LoadFaults,
    at: Instant,
}

/// Files that could not be used are read again after this time, although they have not changed: a read may fail for other reasons.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Takes certificates that change on the disk, for as long as the server runs.
pub(crate) async fn follow(running: Running) {
    let (sources, shown) = (&running.sources, &running.loaded);
    let mut seen = Marks::new();
    let mut refused: Option<Refused> = None;
    let mut warned_at = None;
    loop {
        warned_at = warn_of_end(&shown.load(), warned_at);
        tokio::time::sleep(INTERVAL).await;
        let followed = sources.load_full();
        let Some(now) = blocking(&followed, marks).await else {
            continue;
        };
        let last = std::mem::replace(&mut seen, now);
        if seen == shown.load().marks {
            if refused.take().is_some() {
                running.is_in_force.store(true, Relaxed);
                tracing::info!("TLS: files are as before: {}", sentence(&shown.load()));
            }
            continue;
        }
        let is_known = |it: &Refused| it.marks == seen && it.at.elapsed() < RETRY_AFTER;
        if seen != last || refused.as_ref().is_some_and(is_known) {
            continue;
        }
        let Some(loaded) = load(&running, &followed).await else {
            refused = None;
            continue;
        };
        refused = match loaded {
            Ok(loaded) => {
                take(&running, loaded);
                None
            }
            Err(faults) => {
                let is_said = refused.is_some_and(|it| it.faults == faults && it.marks == seen);
                if !is_said {
                    tracing::error!(
                        "TLS: files have changed and cannot be used; those before stay: {faults}"
                    );
                }
                running.is_in_force.store(false, Relaxed);
                Some(Refused {
                    marks: seen.clone(),
                    faults,
                    at: Instant::now(),
                })
            }
        };
    }
}

/// A look at files takes less, unless their file system hangs.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// Runs `look` on a thread that may block: a network file system may never answer. None if it panicked, or if the server ends.
pub(super) async fn blocking<T: Send + 'static>(
    sources: &Arc<Sources>,
    look: impl FnOnce(&Sources) -> T + Send + 'static,
) -> Option<T> {
    let sources = Arc::clone(sources);
    let mut looked = tokio::task::spawn_blocking(move || look(&sources));
    if let Ok(looked) = tokio::time::timeout(LOOK_MAX, &mut looked).await {
        return looked.ok();
    }
    tracing::warn!(
        "TLS: the files of certificates could not be read for {} s: check their file system; the certificates stay as they are",
        LOOK_MAX.as_secs()
    );
    looked.await.ok()
}

/// Reads the files that `followed` names. None if a reload came meanwhile, which has read them itself, with other options.
pub(super) async fn load(
    running: &Running,
    followed: &Arc<Sources>,
) -> Option<Result<Loaded, LoadFaults>> {
    let loaded = blocking(followed, Sources::load).await;
    let is_followed = Arc::ptr_eq(followed, &running.sources.load_full());
    loaded.filter(|_| is_followed)
}

/// Puts certificates that have changed in force. Handshakes that begin from now on use them.
pub(super) fn take(running: &Running, loaded: Loaded) {
    tracing::info!("TLS: files have changed: {}", sentence(&loaded));
    for remark in loaded.remarks() {
        tracing::warn!("{remark}");
    }
    running.take(Arc::new(loaded));
}

/// Names of a certificate in one line.
const NAMES_MAX: usize = 10;

/// One line for all certificates: names, and days that are left.
pub(crate) fn sentence(loaded: &Loaded) -> String {
    let now = super::pair::now();
    let each = loaded.certificates.iter().map(|shown| {
        let names = match &*shown.names {
            [] => "no name".to_owned(),
            names if names.len() > NAMES_MAX => {
                let others = names.len() - NAMES_MAX;
                format!("{} and {others} others", names[..NAMES_MAX].join(", "))
            }
            names => names.join(", "),
        };
        let left = (shown.expires_at - now).max(0);
        match left / DAY_S {
            0 => format!("{names} (expires in {} hours)", left / HOUR_S),
            days => format!("{names} (expires in {days} days)"),
        }
    });
    let awaited = (!loaded.awaited.is_empty())
        .then(|| format!("{} (no certificate yet)", loaded.awaited.join(", ")));
    each.chain(awaited).collect::<Vec<_>>().join("; ")
}

/// Says once a day which certificates end soon.
fn warn_of_end(loaded: &Loaded, warned_at: Option<i64>) -> Option<i64> {
    let now = super::pair::now();
    if warned_at.is_some_and(|at| now - at < DAY_S) {
        return warned_at;
    }
    let ends = near_ends(loaded);
    for end in &ends {
        match end.is_over {
            true => tracing::error!("TLS: {}", end.words),
            false => tracing::warn!("TLS: {}", end.words),
        }
    }
    if ends.is_empty() {
        warned_at
    } else {
        Some(now)
    }
}

/// A certificate that ends soon, or has ended.
pub(crate) struct NearEnd {
    is_over: bool,
    /// We get the next one ourselves.
    pub(crate) is_renewed: bool,
    pub(crate) words: String,
}

/// Which certificates end soon, and what to do.
pub(crate) fn near_ends(loaded: &Loaded) -> Vec<NearEnd> {
    let now = super::pair::now();
    let each = loaded.certificates.iter().filter_map(|shown| {
        let left = shown.expires_at - now;
        let path = shown.path.display();
        let words = match left {
            ..=0 => format!("the certificate in {path} has expired: clients refuse it"),
            left if left >= warning_time(shown) => return None,
            left if shown.is_renewed => format!(
                "the certificate in {path} expires in {} hours, and could not be renewed; lines above say why",
                left / HOUR_S
            ),
            left => format!(
                "the certificate in {path} expires in {} days: renew it; the file is read again when it changes",
                left / DAY_S
            ),
        };
        Some(NearEnd {
            is_over: left <= 0,
            is_renewed: shown.is_renewed,
            words,
        })
    });
    each.collect()
}

/// The log warns from this time before the end of a certificate on. A certificate of an authority may last a few days only. It is renewed
/// when a third of its time is left, so the log warns when half of that third has gone.
fn warning_time(shown: &Shown) -> i64 {
    let standard = WARNING_DAYS * DAY_S;
    if shown.is_renewed {
        standard.min((shown.expires_at - shown.begins_at) / 6)
    } else {
        standard
    }
}
