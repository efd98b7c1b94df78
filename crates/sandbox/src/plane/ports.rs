//! Free loopback ports that stay free for as long as one can hope.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// Below the range the kernel hands to outgoing connections, so that a plane finds its port again after a restart.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// No port was free.
#[derive(Debug, thiserror::Error)]
#[error("no free port between {FIRST} and {} on 127.0.0.1: end what holds them", FIRST + COUNT)]
pub struct NoFreePort;

/// A port nobody listens on, different for callers that ask at the same time with good odds.
pub fn free_port() -> Result<u16, NoFreePort> {
    let random = RandomState::new();
    (0..1_000_u32)
        .map(|attempt| {
            let offset = random.hash_one(attempt) % u64::from(COUNT);
            FIRST + u16::try_from(offset).unwrap_or(0)
        })
        .find(|port| is_free(*port))
        .ok_or(NoFreePort)
}

pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
