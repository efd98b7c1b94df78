//! Chooses free loopback ports.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// Below the ephemeral port range, so that a port is likely to be still free when a control plane restarts.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// No port is free.
#[derive(Debug, thiserror::Error)]
#[error("no free port between {FIRST} and {} on 127.0.0.1: stop processes that use them", FIRST + COUNT)]
pub struct NoFreePort;

/// Returns a free port. It is random, so that concurrent callers are unlikely to get the same one.
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
