//! Keeps package tools from working longer than the Lease is held.

use std::{thread, time::Duration};

use chandler_core::leadership::BootTime;
use chandler_tool::Tools;
use tokio::sync::watch;

use super::LeaseUntil;
use crate::StartupError;

/// The name of the thread.
const THREAD: &str = "fence";

/// Passes the end of the Lease on to the package tools, which send no request to a cluster after it: a manager that is
/// stopped or cut off cannot end them. On its own thread, because reconciles may block the manager's runtime.
pub fn fence(tools: &Tools, mut lease_until: watch::Receiver<LeaseUntil>) -> Result<(), StartupError> {
    let set = |tools: &Tools, until: LeaseUntil| {
        tools.set_lease_until(until.map_or(Duration::ZERO, BootTime::since_boot));
    };
    set(tools, *lease_until.borrow_and_update());
    let tools = tools.clone();
    let follow = move || {
        // Ends with the leader election.
        while futures::executor::block_on(lease_until.changed()).is_ok() {
            set(&tools, *lease_until.borrow_and_update());
        }
    };
    let started = thread::Builder::new().name(THREAD.to_owned()).spawn(follow);
    started.map(drop).map_err(|source| StartupError::Thread { name: THREAD, source })
}
