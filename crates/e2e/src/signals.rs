//! Signals to processes of a test.

use chandler_sandbox::plane::Plane;
use rustix::process::{Pid, Signal, kill_process};

pub fn send_signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Sends a signal to the API server of a cluster. While it is stopped, it accepts connections and does not answer.
pub async fn signal_api_server(plane: &Plane, signal: Signal) {
    let processes = plane.processes().await;
    let (_, pid) = processes.iter().find(|(name, _)| name.contains("apiserver")).expect("an API server");
    send_signal(*pid, signal);
}
