//! One ring: its queues and its table of direct descriptors.
//!
//! The ring is made with `DEFER_TASKRUN`. The kernel posts completions of armed requests only inside an enter with
//! `GETEVENTS`, on this thread. Until then it sets `TASKRUN` in the submission flags and signals the eventfd.

use super::super::slots::SlotTable;
use super::super::tag::Tag;
use super::queues::QueueSizes;
use super::state::State;
use io_uring::squeue::Entry;
use io_uring::{EnterFlags, IoUring, Probe};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Number of attempts at a submission that the kernel refuses because memory or completion space is short.
const SUBMIT_ATTEMPTS: u32 = 16;

pub(super) struct Ring {
    ring: IoUring,
    table: usize,
    pub(super) slots: SlotTable,
    /// Number of slots in the table.
    size: u32,
    /// Number of slots in use, including closed ones that are not yet reusable.
    used: u32,
    /// This slot and all above it were never used.
    never_used_from: u32,
    free: Vec<u32>,
    /// Slots vacated since the last wait. Until the next wait their identifiers still mean the closed sockets.
    vacated: Vec<u32>,
    /// Entries pushed since the ring was made, wrapping as the kernel's own counter does.
    pushed_count: u32,
    /// Entries that did not fit the queue. None of them borrows memory.
    backlog: VecDeque<Entry>,
    /// The value of `pushed_count` at the begin of the running batch.
    batch_mark: Option<u32>,
    /// Borrowing entries could neither be submitted nor discarded: the kernel must not read the queue again.
    poisoned: bool,
}

impl Ring {
    /// Makes a ring that signals `eventfd`. Its table has the number `table` and `size` slots.
    pub(super) fn new(
        table: usize,
        size: u32,
        eventfd: BorrowedFd<'_>,
        queue_sizes: QueueSizes,
    ) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_no_sqarray()
            .setup_cqsize(queue_sizes.completions)
            .dontfork()
            .build(queue_sizes.submissions)?;
        ring.submitter().register_files_sparse(size)?;
        ring.submitter().register_eventfd(eventfd.as_raw_fd())?;
        Ok(Self {
            ring,
            table,
            slots: SlotTable::default(),
            size,
            used: 0,
            never_used_from: 0,
            free: Vec::new(),
            vacated: Vec::new(),
            pushed_count: 0,
            backlog: VecDeque::new(),
            batch_mark: None,
            poisoned: false,
        })
    }

    /// The operations that this kernel supports.
    pub(super) fn operations(&self) -> io::Result<Probe> {
        let mut probe = Probe::new();
        self.ring.submitter().register_probe(&mut probe)?;
        Ok(probe)
    }

    pub(super) fn free_count(&self) -> u32 {
        self.size - self.used
    }

    /// Puts the socket of an ordinary descriptor into the slot.
    pub(super) fn register_descriptor(&mut self, slot: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.ring
            .submitter()
            .register_files_update(slot, &[fd.as_raw_fd()])
            .map(drop)
    }

    /// Reserves a slot for a new socket. The caller opens it in `slots`, or calls [`Ring::unreserve`].
    pub(super) fn reserve(&mut self) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.never_used_from < self.size => {
                self.never_used_from += 1;
                self.never_used_from - 1
            }
            None => return None,
        };
        self.used += 1;
        Some(slot)
    }

    /// Frees a reserved slot that got no socket.
    pub(super) fn unreserve(&mut self, slot: u32) {
        self.free.push(slot);
        self.used -= 1;
    }

    /// Makes the slot reusable after the next wait. Its close is queued, and no request refers to it any more.
    pub(super) fn vacate(&mut self, slot: u32) {
        self.vacated.push(slot);
    }

    /// Makes vacated slots reusable, and returns their number.
    pub(super) fn reuse_vacated(&mut self) -> usize {
        let count = self.vacated.len();
        self.used -= u32::try_from(count).expect("a table has at most 2^20 slots");
        if self.used == 0 {
            // An empty table starts from slot 0 again and needs no list of free slots.
            self.vacated = Vec::new();
            self.free = Vec::new();
            self.never_used_from = 0;
        } else {
            self.free.append(&mut self.vacated);
        }
        count
    }

    /// Whether the kernel has work for this ring.
    pub(super) fn needs_enter(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow() || !queue.is_empty() || !self.backlog.is_empty()
    }

    /// Whether the kernel has taken every queued entry.
    pub(super) fn is_submitted(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    /// Passes every completion to the state, and returns their number.
    pub(super) fn reap(&mut self, state: &mut State) -> usize {
        let mut count = 0;
        for cqe in self.ring.completion() {
            state.complete(self.table, &mut self.slots, &cqe);
            count += 1;
        }
        count
    }

    /// Submits queued entries, runs task work once, and reaps. Returns the number of completions.
    ///
    /// The kernel runs at most some twenty pieces of task work per enter. It keeps `TASKRUN` set for the rest, so a busy
    /// ring is entered again.
    pub(super) fn pump(&mut self, state: &mut State) -> io::Result<usize> {
        self.push_backlog();
        match self.enter(EnterFlags::GETEVENTS) {
            // The entries stay in the queue: completions must be reaped first, or memory is short.
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM | Errno::INTR) => {
                Ok(self.reap(state))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Submits all queued entries and reaps. Runs task work only if the kernel needs completion space.
    pub(super) fn submit(&mut self, state: &mut State) -> Result<(), Errno> {
        let mut flags = EnterFlags::empty();
        let mut refused = 0;
        while !self.ring.submission().is_empty() {
            match self.enter(flags) {
                Ok(1..) | Err(Errno::INTR) => {}
                Ok(0) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => {
                    refused += 1;
                    if refused == SUBMIT_ATTEMPTS {
                        self.reap(state);
                        return Err(Errno::AGAIN);
                    }
                    // An enter for events flushes completions that did not fit into the queue.
                    flags = EnterFlags::GETEVENTS;
                }
                Err(errno) => return Err(errno),
            }
            self.reap(state);
        }
        Ok(())
    }

    /// Submits everything, entries that did not fit the queue too.
    pub(super) fn submit_all(&mut self, state: &mut State) -> Result<(), Errno> {
        loop {
            self.push_backlog();
            self.submit(state)?;
            if self.backlog.is_empty() {
                return Ok(());
            }
        }
    }

    fn enter(&mut self, flags: EnterFlags) -> Result<usize, Errno> {
        if self.poisoned {
            return Err(Errno::IO);
        }
        let count = u32::try_from(self.ring.submission().len())
            .expect("a queue has at most 32,768 entries");
        // SAFETY: no argument is passed, and every queued entry was made by a method below, whose comment
        // says why what it points to is alive.
        let result = unsafe {
            self.ring
                .submitter()
                .enter::<libc::sigset_t>(count, 0, flags.bits(), None)
        };
        result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn push_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the backlog holds only entries that borrow nothing.
            if unsafe { self.ring.submission().push(entry) }.is_err() {
                return;
            }
            self.pushed_count = self.pushed_count.wrapping_add(1);
            self.backlog.pop_front();
        }
    }

    /// Queues an entry that borrows nothing, after all others.
    pub(super) fn push(&mut self, entry: Entry) {
        if self.backlog.is_empty() {
            if self.ring.submission().is_full() {
                // Entries that the kernel does not take now are submitted in the next wait.
                let _ = self.enter(EnterFlags::empty());
            }
            // SAFETY: the callers' entries borrow nothing.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                self.pushed_count = self.pushed_count.wrapping_add(1);
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// Queues an entry that borrows memory.
    ///
    /// # Safety
    /// The memory that the entry points to lives until the entry is submitted or discarded ([`Ring::end_batch`]).
    pub(super) unsafe fn push_borrowing(
        &mut self,
        entry: &Entry,
        state: &mut State,
    ) -> Result<(), Errno> {
        self.push_backlog();
        if self.ring.submission().is_full() {
            self.submit(state)?;
        }
        if !self.backlog.is_empty() {
            // The backlog may contain the close of this entry's slot, which must come first.
            return Err(Errno::AGAIN);
        }
        // SAFETY: passed on to the caller.
        let result = unsafe { self.ring.submission().push(entry) };
        result.map_err(|_| Errno::AGAIN)?;
        self.pushed_count = self.pushed_count.wrapping_add(1);
        Ok(())
    }

    /// Begins or continues a batch of borrowing entries. True if it begins.
    pub(super) fn begin_batch(&mut self) -> bool {
        if self.batch_mark.is_some() {
            return false;
        }
        self.batch_mark = Some(self.pushed_count);
        true
    }

    /// Submits the rest of the batch. Afterwards the kernel holds none of its entries: those that it did not take are
    /// discarded and passed to `on_discard`.
    pub(super) fn end_batch(&mut self, state: &mut State, on_discard: impl FnMut(Tag)) {
        let mark = self.batch_mark.take();
        if self.submit(state).is_err()
            && let Some(mark) = mark
            && self.discard_since(mark, on_discard).is_err()
        {
            self.poisoned = true;
        }
    }

    /// Turns the entries that were queued since `mark` and that the kernel did not take into no-operations. A later
    /// enter must not reach the memory they borrowed.
    ///
    /// It is slow, because it reaches the entries through a second mapping. It runs only if the kernel persistently
    /// refuses to submit.
    fn discard_since(&mut self, mark: u32, mut on_discard: impl FnMut(Tag)) -> io::Result<()> {
        let entries = self.ring.submission().capacity();
        let waiting = u32::try_from(self.ring.submission().len())
            .expect("a queue has at most 32,768 entries");
        let discarded = waiting.min(self.pushed_count.wrapping_sub(mark));
        let bytes = entries * size_of::<Entry>();
        // SAFETY: a fresh mapping of the ring's entries, whose size is that of the queue.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.ring.as_raw_fd(),
                IORING_OFF_SQES,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for back in 1..=discarded {
            let index = self.pushed_count.wrapping_sub(back) as usize & (entries - 1);
            // SAFETY: the index is below `entries`, so this stays in the mapping.
            let entry = unsafe { map.cast::<[u64; 8]>().add(index) };
            // SAFETY: entries are 64 bytes of plain data, aligned by the kernel to a page; nobody else
            // touches them, as the kernel reads only inside an enter.
            let words = unsafe { entry.read() };
            on_discard(Tag::from_bits(words[SQE_USER_DATA_WORD]));
            // SAFETY: as above. All zeroes is IORING_OP_NOP, tagged `EventKind::Ignored`.
            unsafe { entry.write([0; 8]) };
        }
        // SAFETY: the mapping made above, with its length, and not used any more.
        unsafe { libc::munmap(map, bytes) };
        Ok(())
    }
}

/// Where the kernel maps the submission entries (`linux/io_uring.h`).
const IORING_OFF_SQES: libc::off_t = 0x1000_0000;
/// `user_data` is at byte 32 of an entry.
const SQE_USER_DATA_WORD: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::super::tag::EventKind;
    use super::*;
    use crate::sys::Waker;
    use crate::sys::uring::probe;
    use io_uring::opcode;
    use io_uring::types::Fixed;

    /// No healthy kernel takes this path: borrowing entries are discarded before the kernel has read them.
    #[test]
    fn discarded_entries_send_nothing() {
        if probe::probe().is_err() {
            return;
        }
        let waker = Waker::new().unwrap();
        let sizes = QueueSizes {
            submissions: 8,
            completions: 8,
        };
        let mut ring = Ring::new(0, 4, waker.fd().unwrap(), sizes).unwrap();
        let mut state = State::default();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        ring.register_descriptor(0, std::os::fd::AsFd::as_fd(&near))
            .unwrap();

        let bytes = *b"kept, taken back, sent";
        let mut push = |ring: &mut Ring, part: &[u8], index| {
            let entry =
                opcode::Send::new(Fixed(0), part.as_ptr(), u32::try_from(part.len()).unwrap());
            let entry = entry
                .build()
                .user_data(Tag::plain(EventKind::Send, index).to_bits());
            // SAFETY: `bytes` lives to the end of the test.
            unsafe { ring.push_borrowing(&entry, &mut state) }.unwrap();
        };
        // Enough entries that indices wrap at the end of the queue.
        for index in 0..6 {
            push(&mut ring, &bytes[..1], index);
        }
        ring.submit(&mut State::default()).unwrap();
        push(&mut ring, &bytes[..4], 10);
        assert!(ring.begin_batch());
        for index in 11..15 {
            push(&mut ring, &bytes[6..], index);
        }
        let mut reported = Vec::new();
        let mark = ring.batch_mark.take().unwrap();
        ring.discard_since(mark, |tag| reported.push(tag.index()))
            .unwrap();
        reported.sort_unstable();
        assert_eq!(reported, [11, 12, 13, 14]);

        let mut state = State::default();
        ring.submit(&mut state).unwrap();
        assert_eq!(state.sends, [(10, 4)]);
        let mut received = Vec::new();
        let _ = std::io::Read::read_to_end(&mut { far }, &mut received);
        assert_eq!(received, b"kkkkkkkept");
    }
}
