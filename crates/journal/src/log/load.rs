//! What a log keeps, for whoever takes it into memory at a start.

use super::Log;
use super::compact::{Fate, Known};
use crate::disk::Disk;
use crate::record::Record;
use crate::segment::{Item, SegmentReader};
use std::io;

impl<D: Disk> Log<D> {
    /// Names of its channels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let ids = self.index.names.ids();
        ids.map(|id| self.index.names.get(id).name())
    }

    /// Gives every record that is of use to `take`, but for states of channels, which [`Log::channel`] says. It reads the log from its
    /// beginning. Publications of a channel come by ascending offset, except for copies that compaction made.
    ///
    /// # Errors
    /// The disk fails.
    pub fn load(&self, now_ms: u64, mut take: impl FnMut(&Record<'_>)) -> io::Result<()> {
        for (number, segment) in &self.segments {
            let file = segment.file.clone();
            let mut reader = SegmentReader::new(file, self.log_id, *number, segment.bytes);
            let mut known = Known::new();
            while let Some(item) = reader.next()? {
                let Item::Record(position, found) = item else {
                    continue;
                };
                if matches!(
                    self.fate(&found, position, false, now_ms, &mut known),
                    Fate::Stays
                ) {
                    take(&found.record);
                }
            }
        }
        Ok(())
    }
}
