//! Seeks and keeps leadership on a thread of its own: however long reconciles keep the manager's runtime busy, the Lease
//! is renewed in time.

use std::{thread, time::Duration};

use tokio::{runtime, sync::oneshot};

use super::Election;
use crate::StartupError;

/// The thread that holds the Lease, or waits for it. When this is dropped the thread ends, and the Lease runs out.
pub struct LeaderThread {
    won: oneshot::Receiver<Result<(), StartupError>>,
    lost: oneshot::Receiver<String>,
    resign: oneshot::Sender<()>,
    /// Closed when the thread has ended.
    ended: oneshot::Receiver<()>,
}

/// The thread's side of it.
struct Reports {
    won: oneshot::Sender<Result<(), StartupError>>,
    lost: oneshot::Sender<String>,
    resign: oneshot::Receiver<()>,
}

impl LeaderThread {
    pub fn start(election: Election) -> Result<Self, StartupError> {
        let ((won_sender, won), (lost_sender, lost)) = (oneshot::channel(), oneshot::channel());
        let ((resign, resign_receiver), (ended_sender, ended)) = (oneshot::channel(), oneshot::channel());
        let reports = Reports { won: won_sender, lost: lost_sender, resign: resign_receiver };
        let work = move || {
            match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(lead(election, reports)),
                Err(error) => drop(reports.won.send(Err(not_started(&error)))),
            }
            drop(ended_sender);
        };
        let started = thread::Builder::new().name("lease".to_owned()).spawn(work);
        started.map_err(|error| not_started(&error))?;
        Ok(Self { won, lost, resign, ended })
    }

    /// Returns when this process leads.
    pub async fn won(&mut self) -> Result<(), StartupError> {
        let ended = |_| StartupError::LostLeadership("the thread that seeks the Lease has ended".to_owned());
        (&mut self.won).await.map_err(ended)?
    }

    /// Returns when leadership is lost, and why.
    pub async fn lost(&mut self) -> String {
        let ended = |_| "the thread that renews the Lease has ended".to_owned();
        (&mut self.lost).await.unwrap_or_else(ended)
    }

    /// Gives the Lease up, so that a successor need not wait for it to run out. Only when nothing acts any more.
    pub async fn resign(self) {
        if self.resign.send(()).is_ok() {
            // The thread drops its side of the channel when it ends.
            let _ = self.ended.await;
        }
    }
}

fn not_started(error: &std::io::Error) -> StartupError {
    StartupError::LostLeadership(format!("the thread that renews the Lease cannot be started: {error}"))
}

async fn lead(election: Election, reports: Reports) {
    let Reports { won, lost, mut resign } = reports;
    let patience = election.times.duration / 3;
    let winning = tokio::select! {
        winning = election.win() => winning,
        _ = &mut resign => return,
    };
    // The receivers are gone only if the manager ends, and then `resign` is closed too.
    let mut leadership = match winning {
        Ok(leadership) => {
            let _ = won.send(Ok(()));
            leadership
        }
        Err(error) => {
            let _ = won.send(Err(error.into()));
            return;
        }
    };
    let asked = tokio::select! {
        why = leadership.keep() => {
            let _ = lost.send(why);
            end_if_stuck(patience, resign).await;
            return;
        }
        asked = &mut resign => asked,
    };
    if asked.is_ok() {
        leadership.resign().await;
    }
}

/// Ends the process if the manager does not stop its package tool in time after it lost the Lease: a successor may act soon.
/// The tool ends with the process.
async fn end_if_stuck(patience: Duration, stopped: oneshot::Receiver<()>) {
    // The manager drops its side when the tool is stopped.
    if tokio::time::timeout(patience, stopped).await.is_err() {
        tracing::error!("the Lease is lost and the manager does not stop: ending the process");
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

    /// An API server that has no Lease at first and accepts every one that is written. Counts the updates.
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
    async fn a_reconcile_that_blocks_for_long_does_not_delay_the_renewal() {
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
        thread.won().await.unwrap();
        // This is the only thread of the test's runtime.
        thread::sleep(times.duration * 3);
        let renewed = updates.load(Ordering::Relaxed);
        assert!(renewed >= 5, "renewed {renewed} times, every {:?} expected", times.renew_interval());
        assert!(thread.lost.try_recv().is_err(), "leadership is not lost");
        thread.resign().await;
        assert!(updates.load(Ordering::Relaxed) > renewed, "the Lease was given up by a write");
    }
}
