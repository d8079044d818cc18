//! Streams that a firewall cuts, or that carry nothing: the control connection
//! stands all the while.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::odd_ends::{copy, outcome, run};
use crate::{Server, report};

/// Stands before a real server. Its control connection passes, and of all others
/// the greeting; then they are cut after a while, or nothing passes any more.
fn without_payload(server: &Server, cut_after: Option<Duration>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = format!("127.0.0.1:{}", server.port);
    thread::spawn(move || {
        for (nth, near) in listener.incoming().enumerate() {
            let (near, far) = (near.unwrap(), TcpStream::connect(&server).unwrap());
            let ends = || (near.try_clone().unwrap(), far.try_clone().unwrap());
            let ((up_near, up_far), (down_near, down_far)) = (ends(), ends());
            if nth == 0 {
                thread::spawn(move || copy(up_near, up_far));
                thread::spawn(move || copy(down_far, down_near));
                continue;
            }
            thread::spawn(move || greeting_only(near, far, cut_after));
            if cut_after.is_some() {
                thread::spawn(move || copy(down_far, down_near));
            }
        }
    });
    port
}

fn greeting_only(mut near: TcpStream, mut far: TcpStream, cut_after: Option<Duration>) {
    let mut greeting = [0; 64];
    let bytes = near.read(&mut greeting).unwrap();
    far.write_all(&greeting[..bytes]).unwrap();
    match cut_after {
        Some(after) => {
            thread::sleep(after);
            for end in [&near, &far] {
                socket2::SockRef::from(end)
                    .set_linger(Some(Duration::ZERO))
                    .unwrap();
                let _ = end.shutdown(Shutdown::Both);
            }
        }
        None => thread::sleep(Duration::from_secs(60)),
    }
}

#[test]
fn a_stream_that_is_cut_or_brings_nothing_ends_the_test_with_an_error() {
    let server = Server::start();
    let cut = Some(Duration::from_millis(500));
    let cases: [(&[&str], _, _, _); 5] = [
        (&["tcp", "--time", "4"], cut, "lost", 6),
        (&["tcp", "--time", "4", "--way", "down"], cut, "lost", 6),
        (&["tcp", "--time", "1"], None, "silent", 6),
        (&["tcp", "--time", "1", "--way", "down"], None, "silent", 6),
        (&["transact", "--time", "1"], None, "silent", 6),
    ];
    thread::scope(|scope| {
        for (words, cut_after, code, exit_code) in cases {
            let port = without_payload(&server, cut_after);
            scope.spawn(move || {
                let seen = report(&run(words, &port));
                assert_eq!(
                    outcome(&seen),
                    (code.to_owned(), exit_code),
                    "{words:?}: {seen}"
                );
            });
        }
    });
}
