//! Starts processes that the kernel kills when this process ends, by the parent-death signal.

use std::io;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;

type SpawnResult = io::Result<Child>;

struct SpawnRequest {
    command: Command,
    result: Sender<SpawnResult>,
}

static SPAWNER: Mutex<Option<Sender<SpawnRequest>>> = Mutex::new(None);

/// Returns a command that runs `program` with the parent-death signal set.
pub(super) fn command(program: &std::path::Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Spawns a command from a thread that never ends. The kernel sends the parent-death signal when the spawning thread
/// ends, not when the process does.
pub(super) fn spawn(command: Command) -> SpawnResult {
    let (sender, receiver) = channel();
    spawner()?
        .send(SpawnRequest { command, result: sender })
        .map_err(|_| io::Error::other("the spawning thread has ended"))?;
    receiver.recv().map_err(|_| io::Error::other("the spawning thread has ended"))?
}

fn spawner() -> io::Result<Sender<SpawnRequest>> {
    let mut spawner =
        SPAWNER.lock().map_err(|_| io::Error::other("the spawning thread is in an unknown state"))?;
    if let Some(requests) = spawner.as_ref() {
        return Ok(requests.clone());
    }
    let (sender, requests) = channel::<SpawnRequest>();
    thread::Builder::new().name("sandbox-spawner".to_owned()).spawn(move || {
        for mut request in requests {
            // Sending fails if the caller no longer waits.
            let _ = request.result.send(request.command.spawn());
        }
    })?;
    *spawner = Some(sender.clone());
    Ok(sender)
}
