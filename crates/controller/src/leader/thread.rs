//! Runs the leader election on its own thread, so that the Lease is renewed in time even if reconciles block the
//! manager's runtime.

use std::{thread, time::Duration};

use tokio::{runtime, sync::oneshot};

use super::Election;
use crate::StartupError;

/// The thread that waits for the Lease and holds it. When this is dropped, the thread ends and the Lease expires.
pub struct LeaderThread {
    acquired: oneshot::Receiver<Result<(), StartupError>>,
    lost: oneshot::Receiver<String>,
    resign: oneshot::Sender<()>,
    /// Closed when the thread has ended.
    ended: oneshot::Receiver<()>,
}

/// The channel ends of the thread.
struct Reports {
    acquired: oneshot::Sender<Result<(), StartupError>>,
    lost: oneshot::Sender<String>,
    resign: oneshot::Receiver<()>,
}

impl LeaderThread {
    pub fn start(election: Election) -> Result<Self, StartupError> {
        let ((acquired_sender, acquired), (lost_sender, lost)) = (oneshot::channel(), oneshot::channel());
        let ((resign, resign_receiver), (ended_sender, ended)) = (oneshot::channel(), oneshot::channel());
        let reports = Reports { acquired: acquired_sender, lost: lost_sender, resign: resign_receiver };
        let work = move || {
            match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(lead(election, reports)),
                Err(error) => drop(reports.acquired.send(Err(not_started(&error)))),
            }
            drop(ended_sender);
        };
        let started = thread::Builder::new().name("lease".to_owned()).spawn(work);
        started.map_err(|error| not_started(&error))?;
        Ok(Self { acquired, lost, resign, ended })
    }

    /// Waits until this process has acquired the Lease.
    pub async fn acquired(&mut self) -> Result<(), StartupError> {
        let ended = |_| StartupError::LostLeadership("the leader election thread has ended".to_owned());
        (&mut self.acquired).await.map_err(ended)?
    }

    /// Waits until the Lease is lost. Returns why.
    pub async fn lost(&mut self) -> String {
        let ended = |_| "the leader election thread has ended".to_owned();
        (&mut self.lost).await.unwrap_or_else(ended)
    }

    /// Releases the Lease, so that the next leader need not wait for it to expire. All work must have stopped before.
    pub async fn resign(self) {
        if self.resign.send(()).is_ok() {
            // The thread drops its side of the channel when it ends.
            let _ = self.ended.await;
        }
    }
}

fn not_started(error: &std::io::Error) -> StartupError {
    StartupError::LostLeadership(format!("the leader election thread cannot be started: {error}"))
}

async fn lead(election: Election, reports: Reports) {
    let Reports { acquired, lost, mut resign } = reports;
    let grace_period = election.times.duration / 3;
    let result = tokio::select! {
        result = election.acquire() => result,
        _ = &mut resign => return,
    };
    // The receivers are dropped only if the manager ends, and then `resign` is closed too.
    let mut leadership = match result {
        Ok(leadership) => {
            let _ = acquired.send(Ok(()));
            leadership
        }
        Err(error) => {
            let _ = acquired.send(Err(error.into()));
            return;
        }
    };
    let resigned = tokio::select! {
        reason = leadership.renew_until_lost() => {
            let _ = lost.send(reason);
            abort_unless_stopped(grace_period, resign).await;
            return;
        }
        resigned = &mut resign => resigned,
    };
    if resigned.is_ok() {
        leadership.resign().await;
    }
}

/// Aborts the process if the manager does not stop its package tool within the grace period after the Lease was lost,
/// because another process may become the leader soon. The tool ends with the process.
async fn abort_unless_stopped(grace_period: Duration, stopped: oneshot::Receiver<()>) {
    // The manager drops its end of the channel when the tool has stopped.
    if tokio::time::timeout(grace_period, stopped).await.is_err() {
        tracing::error!("the Lease is lost and the manager does not stop: aborting the process");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use chandler_core::leadership::LeaseTimes;
    use http::{Method, Request, Response};
    use kube::{Client, client::Body};

    use super::*;
    use crate::leader::Connect;

    /// An API server without a Lease that accepts every write. Counts the updates.
    fn api_server(updates: &Arc<AtomicUsize>) -> Connect {
        let updates = updates.clone();
        Connect::new(move || {
            let updates = updates.clone();
            let answer = move |request: Request<Body>| {
                let updates = updates.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let sent = body.collect_bytes().await.unwrap();
                    let (status, body) = match parts.method {
                        Method::GET => (
                            404,
                            br#"{"kind":"Status","status":"Failure","code":404,"reason":"NotFound"}"#
                                .to_vec(),
                        ),
                        Method::PUT => {
                            updates.fetch_add(1, Ordering::Relaxed);
                            (200, sent.to_vec())
                        }
                        _ => (201, sent.to_vec()),
                    };
                    let response = Response::builder().status(status).body(Body::from(body)).unwrap();
                    Ok::<_, Infallible>(response)
                }
            };
            Ok(Client::new(tower::service_fn(answer), "default"))
        })
    }

    #[tokio::test]
    async fn a_blocked_runtime_does_not_delay_the_renewal() {
        let updates = Arc::new(AtomicUsize::new(0));
        let times = LeaseTimes { duration: Duration::from_millis(900) };
        let election = Election {
            namespace: "default".to_owned(),
            name: "chandler".to_owned(),
            identity: "me".to_owned(),
            times,
            connect: api_server(&updates),
        };
        let mut thread = LeaderThread::start(election).unwrap();
        thread.acquired().await.unwrap();
        // This is the only thread of the test's runtime.
        thread::sleep(times.duration * 3);
        let renewed = updates.load(Ordering::Relaxed);
        assert!(renewed >= 5, "renewed {renewed} times, every {:?} expected", times.renew_interval());
        assert!(thread.lost.try_recv().is_err(), "leadership is not lost");
        thread.resign().await;
        assert!(updates.load(Ordering::Relaxed) > renewed, "the Lease was released by a write");
    }
}
