//! Starting processes that the kernel ends when we end, however we end.

use std::io;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;

type Answer = io::Result<Child>;

struct Order {
    command: Command,
    answer: Sender<Answer>,
}

static SPAWNER: Mutex<Option<Sender<Order>>> = Mutex::new(None);

/// The program that sets the parent-death signal before it becomes the real one.
pub(super) fn tethered(program: &std::path::Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Spawns from a thread that never ends: the parent-death signal follows the spawning thread, not the process.
pub(super) fn spawn(command: Command) -> Answer {
    let (answer, answered) = channel();
    spawner()?
        .send(Order { command, answer })
        .map_err(|_| io::Error::other("the spawning thread has ended"))?;
    answered.recv().map_err(|_| io::Error::other("the spawning thread has ended"))?
}

fn spawner() -> io::Result<Sender<Order>> {
    let mut spawner =
        SPAWNER.lock().map_err(|_| io::Error::other("the spawning thread is in an unknown state"))?;
    if let Some(orders) = spawner.as_ref() {
        return Ok(orders.clone());
    }
    let (sender, orders) = channel::<Order>();
    thread::Builder::new().name("sandbox-spawner".to_owned()).spawn(move || {
        for mut order in orders {
            // Whoever asked and left has no use for the answer.
            let _ = order.answer.send(order.command.spawn());
        }
    })?;
    *spawner = Some(sender.clone());
    Ok(sender)
}
