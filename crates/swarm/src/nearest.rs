//! The name that somebody has probably meant.

/// Largest distance at which another name is taken for a slip of the pen.
const SLIP_MAX: usize = 3;

/// The known name nearest to one that is unknown, if it is near enough to be a slip of the pen.
pub(crate) fn nearest(name: &str, known: &[String]) -> Option<String> {
    let distance = |other: &&String| strsim::damerau_levenshtein(other, name);
    let nearest = known.iter().min_by_key(distance)?;
    let is_slip = distance(&nearest) <= SLIP_MAX.min(name.len() / 2);
    is_slip.then(|| nearest.clone())
}
