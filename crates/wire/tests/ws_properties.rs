//! Random conversations: what is written with any fragmentation, masks and interleaved control frames
//! reads back the same, in any cuts; and random damage never gets past the naive reading unnoticed.

use myriad_wire::fuzzing::{Cuts, Item, Transcript, check_frames, read_frames};
use myriad_wire::ws::{
    CloseCode, Extension, Kind, Limits, Opcode, Role, encode_close, encode_frame,
};
use proptest::prelude::*;

const GENEROUS: Limits = Limits {
    frame_bytes_max: 1 << 20,
    message_bytes_max: 1 << 20,
    fragments_max: 64,
};

/// A message, where it is cut into fragments, and the control frames after each.
#[derive(Clone, Debug)]
struct Spoken {
    kind: Kind,
    payload: Vec<u8>,
    cuts: Vec<prop::sample::Index>,
    between: Vec<Option<(bool, Vec<u8>)>>,
}

fn spoken() -> impl Strategy<Value = Spoken> {
    let long = prop_oneof![8 => 0..200_usize, 1 => 60_000..70_000_usize];
    let text = prop_oneof![
        prop::collection::vec(any::<char>(), 0..80)
            .prop_map(|chars| chars.into_iter().collect::<String>()),
        long.clone().prop_map(|length| "é".repeat(length / 2)),
    ];
    let message = prop_oneof![
        text.prop_map(|text| (Kind::Text, text.into_bytes())),
        (long, any::<u8>()).prop_map(|(length, byte)| (Kind::Binary, vec![byte; length])),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| (Kind::Binary, bytes)),
    ];
    let control = (any::<bool>(), prop::collection::vec(any::<u8>(), 0..=125));
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..6);
    (
        message,
        cuts,
        prop::collection::vec(prop::option::of(control), 0..6),
    )
        .prop_map(|((kind, payload), cuts, between)| Spoken {
            kind,
            payload,
            cuts,
            between,
        })
}

/// Writes the messages as a peer of `role` would, and says what must be read.
fn write(
    role: Role,
    conversation: &[Spoken],
    masks: &[[u8; 4]],
    close: Option<&str>,
) -> (Vec<u8>, Vec<Item>) {
    let (mut bytes, mut items) = (Vec::new(), Vec::new());
    let mut masks = masks.iter().copied().cycle();
    let mut mask = || masks.next().filter(|_| role == Role::Server);
    for message in conversation {
        let mut bounds: Vec<_> = message
            .cuts
            .iter()
            .map(|cut| cut.index(message.payload.len() + 1))
            .collect();
        bounds.extend([0, message.payload.len()]);
        bounds.sort_unstable();
        let fragments = bounds.len() - 1;
        for (number, bound) in bounds.windows(2).enumerate() {
            let opcode = if number == 0 {
                message.kind.into()
            } else {
                Opcode::Continuation
            };
            let fin = number + 1 == fragments;
            encode_frame(
                &mut bytes,
                opcode,
                fin,
                mask(),
                &message.payload[bound[0]..bound[1]],
            );
            if fin {
                items.push(Item::Message(message.kind, message.payload.clone()));
            }
            if let Some(Some((is_ping, payload))) = message.between.get(number) {
                let opcode = if *is_ping { Opcode::Ping } else { Opcode::Pong };
                encode_frame(&mut bytes, opcode, true, mask(), payload);
                items.push(if *is_ping {
                    Item::Ping(payload.clone())
                } else {
                    Item::Pong(payload.clone())
                });
            }
        }
    }
    if let Some(reason) = close {
        encode_close(&mut bytes, CloseCode::NORMAL, reason, mask());
        items.push(Item::Close(Some((CloseCode::NORMAL, reason.to_owned()))));
    }
    (bytes, items)
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Server), Just(Role::Client)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(
        role in role(),
        conversation in prop::collection::vec(spoken(), 0..5),
        masks in prop::collection::vec(any::<[u8; 4]>(), 1..4),
        reason in prop::option::of("[a-zé€]{0,40}"),
        sizes in prop::collection::vec(1..3000_usize, 1..8),
    ) {
        let (bytes, items) = write(role, &conversation, &masks, reason.as_deref());
        let expected = Transcript { items, ..Transcript::default() };
        for cuts in [Cuts::None, Cuts::Everywhere, Cuts::Sizes(sizes)] {
            prop_assert_eq!(&read_frames(role, Extension::None, &GENEROUS, &bytes, &cuts), &expected);
        }
    }

    #[test]
    fn damage_is_read_as_the_book_says(
        role in role(),
        conversation in prop::collection::vec(spoken(), 1..4),
        masks in prop::collection::vec(any::<[u8; 4]>(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        limits in prop_oneof![
            Just(GENEROUS),
            Just(Limits { frame_bytes_max: 150, message_bytes_max: 200, fragments_max: 4 }),
        ],
    ) {
        let (mut bytes, _) = write(role, &conversation, &masks, None);
        bytes.truncate(2048);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        check_frames(role, &limits, &bytes);
    }

    #[test]
    fn any_bytes_are_read_as_the_book_says(role in role(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check_frames(role, &GENEROUS, &bytes);
    }
}
