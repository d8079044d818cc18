//! Explicit listeners over real sockets.

use super::*;
use crate::metrics::Metrics;
use farhaul_tunnel::Refusal;
use tokio::time::Instant;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

struct Open {
    listener: Listener,
    requests: mpsc::Receiver<Request>,
    events: Events,
}

async fn open(listen: Listen, patience: Duration) -> Open {
    let events = Events::unlogged(Arc::new(Metrics::new()));
    let (sender, requests) = mpsc::channel(4);
    let listener = listen_within(&listen, sender, events.clone(), (512, patience))
        .await
        .unwrap();
    Open {
        listener,
        requests,
        events,
    }
}

impl Open {
    async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.listener.address).await.unwrap()
    }

    async fn request(&mut self) -> Request {
        timeout(LONG, self.requests.recv()).await.unwrap().unwrap()
    }
}

async fn exactly<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    timeout(LONG, stream.read_exact(&mut bytes))
        .await
        .unwrap()
        .unwrap();
    bytes
}

async fn to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    timeout(LONG, stream.read_to_end(&mut bytes))
        .await
        .unwrap()
        .unwrap();
    bytes
}

#[tokio::test]
async fn socks_byte_by_byte_and_the_answer_comes_only_when_it_is_known() {
    let mut open = open(Listen::Socks(any_port()), LONG).await;
    let mut client = open.dial().await;
    for byte in [5, 2, 0, 2] {
        client.write_all(&[byte]).await.unwrap();
    }
    assert_eq!(exactly(&mut client).await, [5, 0]);
    for byte in [5, 1, 0, 1, 10, 2, 0, 1, 1, 0xbd] {
        client.write_all(&[byte]).await.unwrap();
    }
    let mut request = open.request().await;
    assert_eq!(
        request.target,
        Target::Address("10.2.0.1:445".parse().unwrap())
    );
    assert_eq!(request.client, client.local_addr().unwrap());
    assert!(request.leftover.is_empty());
    let early = timeout(Duration::from_millis(50), client.read(&mut [0; 1])).await;
    assert!(early.is_err(), "answered before the far side did");
    request
        .answer
        .succeed(&mut request.stream, "192.0.2.1:9".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(exactly(&mut client).await, [5, 0, 0, 1, 192, 0, 2, 1, 0, 9]);
    request.stream.write_all(b"hello").await.unwrap();
    assert_eq!(&exactly::<5>(&mut client).await, b"hello");
}

#[tokio::test]
async fn a_client_that_does_not_wait_loses_no_byte() {
    let mut socks = open(Listen::Socks(any_port()), LONG).await;
    let mut client = socks.dial().await;
    client
        .write_all(b"\x05\x01\x00\x05\x01\x00\x03\x01a\x00\x50GET / HTTP/1.0")
        .await
        .unwrap();
    let request = socks.request().await;
    assert_eq!(
        request.target,
        Target::Host {
            name: "a".into(),
            port: 80
        }
    );
    let mut stream = request.stream;
    let mut got = request.leftover.to_vec();
    client.shutdown().await.unwrap();
    stream.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"GET / HTTP/1.0");

    let mut connect = open(Listen::Connect(any_port()), LONG).await;
    let mut client = connect.dial().await;
    client
        .write_all(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n\x16\x03")
        .await
        .unwrap();
    let mut request = connect.request().await;
    assert_eq!(&request.leftover[..], b"\x16\x03");
    request
        .answer
        .succeed(&mut request.stream, any_port())
        .await
        .unwrap();
    drop(request);
    assert_eq!(
        to_end(&mut client).await,
        b"HTTP/1.1 200 Connection established\r\n\r\n"
    );
}

#[tokio::test]
async fn failures_arrive_although_the_client_has_sent_more() {
    for (listen, hello, expected) in [
        (
            Listen::Socks(any_port()),
            "\x05\x01\x00\x05\x01\x00\x03\x01a\x00\x50",
            &b"\x05\x00\x05\x05\x00\x01"[..],
        ),
        (
            Listen::Connect(any_port()),
            "CONNECT a:80 HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 502 ",
        ),
    ] {
        let mut open = open(listen, LONG).await;
        let mut client = open.dial().await;
        client.write_all(hello.as_bytes()).await.unwrap();
        client.write_all(&[0; 30_000]).await.unwrap();
        let request = open.request().await;
        tokio::spawn(request.answer.fail(request.stream, Refusal::Refused));
        let mut got = vec![0; expected.len()];
        timeout(LONG, client.read_exact(&mut got))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(got, expected);
    }
}

#[tokio::test]
async fn a_forward_says_nothing_and_fails_with_a_reset() {
    let target = HostPort {
        host: "10.2.0.1".into(),
        port: 22,
    };
    let mut open = open(
        Listen::Forward {
            listen: any_port(),
            target,
        },
        LONG,
    )
    .await;
    let mut client = open.dial().await;
    let mut request = open.request().await;
    assert_eq!(
        request.target,
        Target::Address("10.2.0.1:22".parse().unwrap())
    );
    request
        .answer
        .succeed(&mut request.stream, any_port())
        .await
        .unwrap();
    request.answer.fail(request.stream, Refusal::Refused).await;
    let error = timeout(LONG, client.read(&mut [0; 1]))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn who_does_not_speak_the_protocol_is_told_closed_and_counted() {
    let socks = open(Listen::Socks(any_port()), LONG).await;
    let mut seen = socks.events.subscribe();
    let mut client = socks.dial().await;
    client.write_all(&[5, 1, 0, 5, 2, 0, 1]).await.unwrap();
    assert_eq!(
        to_end(&mut client).await,
        [5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]
    );
    let event = timeout(LONG, seen.recv()).await.unwrap().unwrap();
    assert!(
        matches!(
            event,
            Event::HandshakeFailed {
                listener: "socks",
                ..
            }
        ),
        "{event:?}"
    );

    let connect = open(Listen::Connect(any_port()), LONG).await;
    let mut client = connect.dial().await;
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(to_end(&mut client).await.starts_with(b"HTTP/1.1 405 "));
}

#[tokio::test]
async fn silent_and_trickling_clients_are_closed_in_time() {
    let open = open(Listen::Connect(any_port()), SHORT).await;
    let mut silent = open.dial().await;
    let mut slow = open.dial().await;
    let began = Instant::now();
    let trickle = async {
        while slow.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, trickle).await.unwrap();
    assert!(to_end(&mut silent).await.is_empty());
    assert!(began.elapsed() >= SHORT);
}

#[tokio::test]
async fn one_client_cannot_take_every_handshake() {
    let mut open = open(Listen::Socks(any_port()), LONG).await;
    let mut idle = Vec::new();
    for _ in 0..HANDSHAKES_PER_CLIENT_MAX {
        idle.push(open.dial().await);
    }
    let mut beyond = open.dial().await;
    assert!(to_end(&mut beyond).await.is_empty());
    // Another address is served meanwhile, and a place that gets free is given on.
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = other.connect(open.listener.address).await.unwrap();
    other
        .write_all(b"\x05\x01\x00\x05\x01\x00\x03\x01a\x00\x50")
        .await
        .unwrap();
    open.request().await;
    drop(idle);
    timeout(LONG, async {
        loop {
            let mut again = open.dial().await;
            let _ = again.write_all(&[5, 1, 0]).await;
            if again.read_exact(&mut [0; 2]).await.is_ok() {
                return;
            }
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_taken_port_is_named_with_its_key() {
    let first = open(Listen::Socks(any_port()), LONG).await;
    let events = Events::unlogged(Arc::new(Metrics::new()));
    let (sender, _requests) = mpsc::channel(1);
    let address = first.listener.address;
    let error = listen(&Listen::Connect(address), sender, events, 512)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let text = error.to_string();
    assert!(
        text.contains("listen.connect") && text.contains(&address.to_string()),
        "{text}"
    );
}

#[tokio::test]
async fn dropping_the_listener_closes_the_port_and_open_handshakes() {
    let open = open(Listen::Socks(any_port()), LONG).await;
    let mut client = open.dial().await;
    client.write_all(&[5, 1, 0]).await.unwrap();
    assert_eq!(exactly(&mut client).await, [5, 0]);
    let address = open.listener.address;
    drop(open.listener);
    assert!(to_end(&mut client).await.is_empty());
    timeout(LONG, async {
        while TcpStream::connect(address).await.is_ok() {}
    })
    .await
    .unwrap();
}
