//! What clients speak, as the list of protocols names it.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use myriad_swarm::Protocol;

/// Reads the name of one of the protocols for which this holds. The help has what each is.
pub(crate) fn protocol(
    is_meant: impl Fn(Protocol) -> bool,
) -> impl TypedValueParser<Value = Protocol> {
    let meant = Protocol::ALL.into_iter().filter(|it| is_meant(*it));
    let values = meant.map(|protocol| {
        PossibleValue::new(protocol.name())
            .aliases(protocol.other_names())
            .help(protocol.summary())
    });
    let values: Vec<PossibleValue> = values.collect();
    let read = |name: String| Protocol::named(&name).ok_or("there is no such protocol");
    PossibleValuesParser::new(values).try_map(read)
}
