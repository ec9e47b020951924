//! Connections that end on one side only, or not at all.

use super::{Scene, check_end, close_frame, end_our_side, masked, send};
use crate::support::{on_both_drivers, options, until};
use std::io::Write;

on_both_drivers! {
    fn a_message_that_is_never_finished_is_forgotten_with_its_connection(driver) {
        let mut scene = Scene::start(options(driver));
        let beginnings = [
            masked(0x01, &[b'x'; 10_000]),
            masked(0x82, &[b'x'; 10_000])[..5_000].to_vec(),
            masked(0x89, b"ping")[..3].to_vec(),
        ];
        for beginning in &beginnings {
            let mut stream = scene.upgraded("/echo");
            send(&mut stream, beginning);
            until("it is kept", || scene.metric("myriad_buffered_bytes") > 0);
            end_our_side(&stream);
            check_end(&mut stream, "");
            until("it is forgotten", || scene.metric("myriad_buffered_bytes") == 0);
        }
        until("each is counted", || scene.closes("client") == beginnings.len() as u64);
        scene.check_settled();
    }

    fn a_broken_connection_is_forgotten(driver) {
        let mut scene = Scene::start(options(driver));
        let mut stream = scene.upgraded("/echo");
        send(&mut stream, masked(0x01, &[b'x'; 10_000]));
        until("it is kept", || scene.metric("myriad_buffered_bytes") > 0);
        // Closing with unread input is a reset.
        send(&mut stream, masked(0x89, b"unread"));
        let mut byte = [0];
        stream.peek(&mut byte).expect("a pong");
        drop(stream);
        until("it is counted", || scene.closes("reset") == 1);
        scene.check_settled();
    }

    fn a_client_that_stays_behind_the_close_is_let_go(driver) {
        let mut scene = Scene::start(options(driver));
        let mut stays = scene.upgraded("/echo");
        let mut talks = scene.upgraded("/echo");
        let sentence = "The opcode is reserved: send 0, 1, 2, 8, 9 or 10.";
        for stream in [&mut stays, &mut talks] {
            send(stream, masked(0x83, b""));
            check_end(stream, close_frame(1002, sentence));
        }
        // One says nothing more, the other never stops: both are gone when the linger is over.
        let talker = std::thread::spawn(move || {
            while talks.write_all(&[0xff; 1000]).is_ok() {}
        });
        scene.check_bystander();
        scene.check_settled();
        talker.join().expect("the server does not listen for ever");
        drop(stays);
    }
}
