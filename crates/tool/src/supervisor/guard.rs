//! Processes in use, and what the failure of a call says about them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chandler_core::failure::{Category, Failure};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};
use tonic::{Code, Status, transport::Channel};

use super::{
    Service, Shared, Supervisor,
    control::{Call, lock},
    process::Process,
    slots::INTERRUPTED_AFTER,
};

/// How long the end of a process may take that has closed its connections.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

/// A process in use. A process that is replaced is not ended while a guard of it exists.
#[derive(Debug)]
pub struct ProcessGuard {
    // Dropped first: it says that the call has ended.
    call: Call,
    process: Arc<Process>,
    /// What the call works on.
    subject: String,
    /// Whether the call had its turn to run alone.
    alone: bool,
    turn: Mutex<Option<Turn>>,
    supervisor: Supervisor,
}

/// The right to run a call.
#[derive(Debug)]
pub(super) enum Turn {
    /// Other calls run too.
    Shared { _turn: OwnedRwLockReadGuard<()> },
    /// No other call runs, except for those that only wait.
    Alone { _turn: OwnedRwLockWriteGuard<()> },
}

impl Turn {
    /// Waits for the turn of a call. It runs alone if the process has ended during an earlier call on the same subject, and other
    /// calls may have been the cause.
    pub async fn take(shared: &Arc<Shared>, subject: &str, alone: bool) -> Self {
        if alone || shared.is_suspect(subject) {
            let turn = shared.turnstile.clone().write_owned().await;
            shared.clear(subject);
            Self::Alone { _turn: turn }
        } else {
            Self::Shared { _turn: shared.turnstile.clone().read_owned().await }
        }
    }
}

/// Why a call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// The process has ended because of this call.
    Crashed(Failure),
    /// The process has ended, and another call may be the cause.
    Interrupted(Failure),
    /// The process has not ended, or the manager has ended it.
    Other(Failure),
}

impl From<CallFailure> for Failure {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Crashed(failure)
            | CallFailure::Interrupted(failure)
            | CallFailure::Other(failure) => failure,
        }
    }
}

impl ProcessGuard {
    pub(super) fn new(
        (process, call): (Arc<Process>, Call),
        subject: String,
        turn: Turn,
        supervisor: Supervisor,
    ) -> Self {
        let alone = matches!(turn, Turn::Alone { .. });
        Self { call, process, subject, alone, turn: Mutex::new(Some(turn)), supervisor }
    }

    /// The channel to the process.
    pub fn channel(&self) -> Channel {
        self.process.channel()
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Records whether the call only waits for objects from now on. Then another one may run alone.
    pub(crate) fn set_waiting(&self, waiting: bool) {
        self.call.set_busy(!waiting);
        if waiting {
            lock(&self.turn).take();
        }
    }

    /// Records that the call may still run although its caller has given up.
    pub(crate) fn abandon(&self) {
        self.process.control().abandon_call();
    }

    /// Returns why the call has failed.
    pub(crate) async fn failure(&self, status: &Status) -> CallFailure {
        let service = self.supervisor.0.config.service;
        let failure = call_failed(service, status);
        if failure.category != Category::ToolUnavailable {
            return CallFailure::Other(failure);
        }
        let control = self.process.control();
        // Nothing is concluded if it does not end.
        let _ = tokio::time::timeout(EXIT_LIMIT, control.exited()).await;
        if control.is_interrupted() {
            let message = format!(
                "the {service} was interrupted after {} min, because other calls wait for its memory; the operation is repeated",
                INTERRUPTED_AFTER.as_secs() / 60
            );
            return CallFailure::Other(Failure::new(Category::ToolUnavailable, message));
        }
        let Some(death) = control.death() else { return CallFailure::Other(failure) };
        let cause = &death.cause.text;
        if death.is_caused_by(self.call.is_busy(), self.alone) {
            let message = format!("the {service} ended while it worked on this and nothing else: {cause}");
            return CallFailure::Crashed(Failure::new(Category::ToolCrashed, message));
        }
        self.supervisor.0.suspect(&self.subject);
        let message = format!(
            "the {service} ended while it ran {} calls, which are tried again one at a time: {cause}",
            death.in_flight
        );
        CallFailure::Interrupted(Failure::new(Category::ToolUnavailable, message))
    }

    /// Returns why a call that touches no cluster has failed. If it did not end in time, the process gets no more calls: it may
    /// work on until it reaches a limit.
    pub(crate) async fn local_failure(&self, status: &Status) -> CallFailure {
        let failure = self.failure(status).await;
        if matches!(&failure, CallFailure::Other(failure) if failure.category == Category::Timeout) {
            self.abandon();
        }
        failure
    }
}

/// Converts the gRPC status of a failed call.
fn call_failed(service: Service, status: &Status) -> Failure {
    match status.code() {
        Code::DeadlineExceeded => no_answer(service, &format!(": {}", status.message())),
        // The client's own time limit.
        Code::Cancelled if status.message() == "Timeout expired" => no_answer(service, ""),
        Code::Cancelled => {
            Failure::new(Category::Cancelled, format!("the call to the {service} was canceled"))
        }
        code => Failure::new(
            Category::ToolUnavailable,
            format!("the call to the {service} failed ({code:?}): {}", status.message()),
        ),
    }
}

fn no_answer(service: Service, detail: &str) -> Failure {
    Failure::new(Category::Timeout, format!("the {service} did not answer in time{detail}"))
}
