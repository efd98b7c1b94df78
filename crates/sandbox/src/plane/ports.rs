//! Chooses free loopback ports.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Below the ephemeral port range, so that a port is likely to be still free when a control plane restarts.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// No port is free.
#[derive(Debug, thiserror::Error)]
#[error("no free port between {FIRST} and {} on 127.0.0.1: stop processes that use them", FIRST + COUNT)]
pub struct NoFreePort;

/// The ports that this process has returned: a caller may not listen on its port yet.
static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns a free port that no other caller in this process gets. It is random, so that other processes are unlikely to get
/// it.
pub fn free_port() -> Result<u16, NoFreePort> {
    let random = RandomState::new();
    let mut returned = RETURNED.lock().unwrap_or_else(PoisonError::into_inner);
    let port = (0..1_000_u32)
        .map(|attempt| {
            let offset = random.hash_one(attempt) % u64::from(COUNT);
            FIRST + u16::try_from(offset).unwrap_or(0)
        })
        .find(|port| !returned.contains(port) && is_free(*port))
        .ok_or(NoFreePort)?;
    returned.insert(port);
    Ok(port)
}

pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
