//! Promises of the pumps: every byte arrives once and in order, ends are passed on, buffers are bounded and returned.

use std::time::Duration;

use chandler_tunnel::{PumpError, Settings};
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    task::JoinHandle,
    time::timeout,
};

use crate::harness::{Connected, Options, Tunnel, run, within};

/// Which side ends its direction first.
#[derive(Clone, Copy, Debug)]
enum Order {
    ClientFirst,
    ServerFirst,
    Together,
}

#[derive(Clone, Debug)]
struct Case {
    upload: Vec<usize>,
    download: Vec<usize>,
    order: Order,
    options: Options,
}

fn chunks() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1..20_usize, 1000..70_000_usize];
    proptest::collection::vec(size, 0..8)
}

prop_compose! {
    fn cases()(
        upload in chunks(),
        download in chunks(),
        order in prop_oneof![Just(Order::ClientFirst), Just(Order::ServerFirst), Just(Order::Together)],
        stream_window in prop_oneof![Just(1_u32), 100..2000_u32, Just(256 * 1024)],
        budget in prop_oneof![Just(1_usize), 100..100_000_usize, Just(64 << 20)],
        wire_buffer in 50..100_000_usize,
        socket_buffer in prop_oneof![Just(1_usize), 10..100_000_usize],
    ) -> Case {
        // Small windows cost many frames: less data prove the same.
        let most = if stream_window == 1 || socket_buffer == 1 {
            500
        } else if stream_window < 2000 {
            5000
        } else {
            usize::MAX
        };
        let scale = |sizes: Vec<usize>| sizes.into_iter().map(|size| size.min(most)).collect();
        let settings = Settings { stream_window, ..Settings::tunnel() };
        let options = Options { settings, budget, wire_buffer, socket_buffer };
        Case { upload: scale(upload), download: scale(download), order, options }
    }
}

/// Returns bytes of which no two positions close to each other are equal.
fn content(sizes: &[usize], seed: u8) -> Vec<Vec<u8>> {
    let mut next = u32::from(seed);
    let mut byte = || {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        next.to_be_bytes()[0]
    };
    sizes.iter().map(|size| (0..*size).map(|_| byte()).collect()).collect()
}

/// Writes chunks and ends the direction; receives the other direction to its end, before or after.
async fn talk(mut socket: DuplexStream, chunks: Vec<Vec<u8>>, listen_first: bool, together: bool) -> Vec<u8> {
    let mut received = Vec::new();
    if listen_first {
        socket.read_to_end(&mut received).await.unwrap();
    }
    let (mut read, mut write) = tokio::io::split(socket);
    let writing = async {
        for chunk in chunks {
            write.write_all(&chunk).await.unwrap();
        }
        write.shutdown().await.unwrap();
    };
    if together {
        tokio::join!(writing, async { read.read_to_end(&mut received).await.unwrap() });
    } else {
        writing.await;
        if !listen_first {
            read.read_to_end(&mut received).await.unwrap();
        }
    }
    received
}

async fn transfer(case: Case) {
    let mut tunnel = Tunnel::start(case.options).await;
    let Connected { client, server, pumping } = tunnel.connect().await.unwrap();
    let (upload, download) = (content(&case.upload, 1), content(&case.download, 2));
    let together = matches!(case.order, Order::Together);
    let client_listens = matches!(case.order, Order::ServerFirst);
    let server_listens = matches!(case.order, Order::ClientFirst);
    let (at_client, at_server) = within(async {
        tokio::join!(
            talk(client, upload.clone(), client_listens, together),
            talk(server, download.clone(), server_listens, together),
        )
    })
    .await;
    assert!(at_server == upload.concat(), "the upload differs");
    assert!(at_client == download.concat(), "the download differs");
    within(pumping).await.unwrap().unwrap();
    tunnel.wait_for_empty_budgets().await;
    let traffic = tunnel.hub_pump.traffic();
    assert_eq!(traffic.to_stream(), at_server.len() as u64);
    assert_eq!(traffic.from_stream(), at_client.len() as u64);
    assert_eq!(tunnel.hub.open_streams(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_for_any_chunks_windows_and_ends(case in cases()) {
        run(transfer(case));
    }
}

/// Writes until the connection takes nothing for a while, and returns how much it took.
async fn fill(socket: &mut DuplexStream) -> usize {
    let chunk = vec![7; 4096];
    let mut count = 0;
    while let Ok(written) = timeout(Duration::from_secs(5), socket.write(&chunk)).await {
        count += written.unwrap();
    }
    count
}

fn small_windows() -> Options {
    let settings = Settings { stream_window: 16 * 1024, ..Settings::tunnel() };
    Options { settings, wire_buffer: 4096, socket_buffer: 4096, ..Options::default() }
}

#[test]
fn stalled_readers_do_not_block_another_stream() {
    run(async {
        let mut tunnel = Tunnel::start(small_windows()).await;
        let mut stalled = Vec::new();
        for _ in 0..127 {
            let mut connected = tunnel.connect().await.unwrap();
            let taken = fill(&mut connected.client).await;
            assert!(taken < 160 * 1024, "a stalled stream took {taken} bytes");
            stalled.push((connected, taken));
        }
        let mut live = tunnel.connect().await.unwrap();
        let sent = vec![9; 1 << 20];
        let mut received = vec![0; sent.len()];
        within(async {
            tokio::join!(async { live.client.write_all(&sent).await.unwrap() }, async {
                live.server.read_exact(&mut received).await.unwrap()
            },)
        })
        .await;
        assert!(received == sent);
        live.finish().await;

        // What was sent to a stalled reader is not lost.
        for (mut connected, taken) in stalled {
            let mut received = vec![0; taken];
            within(connected.server.read_exact(&mut received)).await.unwrap();
            assert!(received.iter().all(|byte| *byte == 7));
            connected.finish().await;
        }
        tunnel.wait_for_empty_budgets().await;
    });
}

#[test]
fn stalled_reader_is_cut_only_while_the_budget_is_exhausted() {
    run(async {
        let mut options = small_windows();
        let mut tunnel = Tunnel::start(options.clone()).await;
        let mut patient = tunnel.connect().await.unwrap();
        let taken = fill(&mut patient.client).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        let mut received = vec![0; taken];
        within(patient.server.read_exact(&mut received)).await.unwrap();
        patient.finish().await;

        options.budget = 8 * 1024;
        let mut tunnel = Tunnel::start(options).await;
        let mut stalled = tunnel.connect().await.unwrap();
        fill(&mut stalled.client).await;
        let ended = within(stalled.pumping).await.unwrap();
        assert!(matches!(ended, Err(PumpError::Reset(_) | PumpError::Stalled)), "{ended:?}");
        tunnel.wait_for_empty_budgets().await;
        let mut next = tunnel.connect().await.unwrap();
        next.ping_pong().await;
        next.finish().await;
    });
}

/// Starts a transfer that has no end.
fn send_forever(mut socket: DuplexStream) -> JoinHandle<()> {
    tokio::spawn(async move { while socket.write_all(&[3; 1000]).await.is_ok() {} })
}

#[test]
fn a_side_that_disappears_ends_the_other_side() {
    run(async {
        let mut tunnel = Tunnel::start(Options::default()).await;
        let Connected { client, server, pumping } = tunnel.connect().await.unwrap();
        let sending = send_forever(server);
        drop(client);
        within(sending).await.unwrap();
        assert!(matches!(within(pumping).await.unwrap(), Err(PumpError::Socket(_))));

        let Connected { client, server, pumping } = tunnel.connect().await.unwrap();
        let sending = send_forever(client);
        drop(server);
        within(sending).await.unwrap();
        assert!(matches!(within(pumping).await.unwrap(), Err(PumpError::Reset(_))));
        tunnel.wait_for_empty_budgets().await;
    });
}

#[test]
fn dropping_a_pump_resets_its_stream_and_returns_its_budget() {
    run(async {
        let mut tunnel = Tunnel::start(small_windows()).await;
        let Connected { mut client, mut server, pumping } = tunnel.connect().await.unwrap();
        fill(&mut client).await;
        assert!(tunnel.agent_pump.budget().used() > 0);
        pumping.abort();
        // The server sees an end; the clients' protocol detects that it was cut.
        let mut rest = Vec::new();
        within(server.read_to_end(&mut rest)).await.unwrap();
        tunnel.wait_for_empty_budgets().await;
        assert_eq!(tunnel.hub.open_streams(), 0);
    });
}

#[test]
fn idle_and_half_closed_streams_notice_a_reset() {
    run(async {
        let mut tunnel = Tunnel::start(Options::default()).await;
        let Connected { mut client, mut server, pumping } = tunnel.connect().await.unwrap();
        server.shutdown().await.unwrap();
        let mut nothing = Vec::new();
        within(client.read_to_end(&mut nothing)).await.unwrap();
        // The server has ended its direction, and now disappears; the client is idle.
        drop(server);
        client.write_all(b"x").await.unwrap();
        assert!(within(pumping).await.unwrap().is_err());
        tunnel.wait_for_empty_budgets().await;
    });
}
