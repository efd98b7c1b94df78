//! Runs the leader election on its own thread, so that the Lease is renewed in time even if reconciles block the
//! manager's runtime.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use tokio::{
    runtime,
    sync::{oneshot, watch},
};

use super::{Election, LeaseUntil};
use crate::StartupError;

/// The name of the thread.
const THREAD: &str = "lease";
/// How long the release of the Lease may take. If it takes longer, the Lease expires.
const RESIGN_LIMIT: Duration = Duration::from_secs(5);

/// The thread that waits for the Lease and holds it. When this is dropped, the thread ends and the Lease expires.
pub struct LeaderThread {
    acquired: oneshot::Receiver<Result<(), StartupError>>,
    lost: oneshot::Receiver<String>,
    lease_until: watch::Receiver<LeaseUntil>,
    resign: oneshot::Sender<()>,
    /// Closed when the thread has ended.
    ended: oneshot::Receiver<()>,
}

/// The channel ends of the thread.
struct Reports {
    standby: Arc<AtomicBool>,
    acquired: oneshot::Sender<Result<(), StartupError>>,
    lost: oneshot::Sender<String>,
    lease_until: watch::Sender<LeaseUntil>,
    resign: oneshot::Receiver<()>,
}

impl LeaderThread {
    /// Starts the thread. It sets `standby` while another process holds the Lease.
    pub fn start(election: Election, standby: Arc<AtomicBool>) -> Result<Self, StartupError> {
        let ((acquired_sender, acquired), (lost_sender, lost)) = (oneshot::channel(), oneshot::channel());
        let ((resign, resign_receiver), (ended_sender, ended)) = (oneshot::channel(), oneshot::channel());
        let (lease_until_sender, lease_until) = watch::channel(None);
        let reports = Reports {
            standby,
            acquired: acquired_sender,
            lost: lost_sender,
            lease_until: lease_until_sender,
            resign: resign_receiver,
        };
        let work = move || {
            match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(lead(election, reports)),
                Err(error) => drop(reports.acquired.send(Err(not_started(error)))),
            }
            drop(ended_sender);
        };
        thread::Builder::new().name(THREAD.to_owned()).spawn(work).map_err(not_started)?;
        Ok(Self { acquired, lost, lease_until, resign, ended })
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

    /// Returns until when this process certainly holds the Lease. It changes at every renewal, and is `None` before the
    /// Lease is acquired and after it is lost or released.
    pub fn lease_until(&self) -> watch::Receiver<LeaseUntil> {
        self.lease_until.clone()
    }

    /// Releases the Lease, so that the next leader need not wait for it to expire. All work must have stopped before.
    pub async fn resign(self) {
        self.resign_within(RESIGN_LIMIT).await;
    }

    async fn resign_within(self, limit: Duration) {
        if self.resign.send(()).is_err() {
            return;
        }
        // The thread drops its side of the channel when it ends.
        if tokio::time::timeout(limit, self.ended).await.is_err() {
            tracing::warn!("the Lease was not released within {limit:?}; it will expire");
        }
    }
}

fn not_started(source: io::Error) -> StartupError {
    StartupError::Thread { name: THREAD, source }
}

async fn lead(election: Election, reports: Reports) {
    let Reports { standby, acquired, lost, lease_until, mut resign } = reports;
    let stop_period = election.times.stop_period();
    let result = tokio::select! {
        result = election.acquire(&standby, lease_until) => result,
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
            abort_unless_stopped(stop_period, resign).await;
            return;
        }
        resigned = &mut resign => resigned,
    };
    if resigned.is_ok() {
        leadership.resign().await;
    }
}

/// Aborts the process if the manager does not stop its package tool in time after the Lease was lost, because another
/// process may become the leader soon. The tool ends with the process.
async fn abort_unless_stopped(stop_period: Duration, stopped: oneshot::Receiver<()>) {
    // The manager drops its end of the channel when the tool has stopped.
    if tokio::time::timeout(stop_period, stopped).await.is_err() {
        tracing::error!("the Lease is lost and the manager does not stop: aborting the process");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use chandler_core::leadership::LeaseTimes;

    use super::*;
    use crate::leader::{clock, fake_api_server::FakeApiServer};

    /// After a lost Lease the test must drop the thread before the Lease ends, or else the thread aborts the process.
    fn times() -> LeaseTimes {
        let (duration, deadline, retry) =
            (Duration::from_secs(20), Duration::from_secs(4), Duration::from_millis(300));
        LeaseTimes::new(duration, Some(deadline), Some(retry)).unwrap()
    }

    fn start(server: &FakeApiServer, standby: &Arc<AtomicBool>) -> LeaderThread {
        let election = Election {
            namespace: "default".to_owned(),
            name: "chandler".to_owned(),
            identity: "me".to_owned(),
            times: times(),
            connect: server.connect(),
        };
        LeaderThread::start(election, standby.clone()).unwrap()
    }

    async fn leader(server: &FakeApiServer) -> LeaderThread {
        let mut thread = start(server, &Arc::default());
        thread.acquired().await.unwrap();
        thread
    }

    /// Waits for a change of the published time.
    async fn changed(lease_until: &mut watch::Receiver<LeaseUntil>) -> LeaseUntil {
        tokio::time::timeout(Duration::from_secs(5), lease_until.changed()).await.unwrap().unwrap();
        *lease_until.borrow_and_update()
    }

    #[tokio::test]
    async fn a_blocked_runtime_does_not_delay_the_renewal() {
        let server = FakeApiServer::default();
        let mut thread = leader(&server).await;
        // This is the only thread of the test's runtime.
        thread::sleep(times().renew_deadline() + Duration::from_secs(1));
        let renewed = server.updates();
        assert!(renewed >= 5, "renewed {renewed} times, every {:?} expected", times().retry_period());
        assert!(thread.lost.try_recv().is_err(), "leadership is not lost");
        thread.resign().await;
        assert_eq!(server.holder().as_deref(), Some(""), "the Lease is released");
    }

    #[tokio::test]
    async fn each_renewal_publishes_until_when_the_lease_is_held() {
        let server = FakeApiServer::default();
        let before = clock::now();
        let thread = leader(&server).await;
        let mut lease_until = thread.lease_until();
        let first = lease_until.borrow_and_update().unwrap();
        assert!(first >= before + times().duration() && first <= clock::now() + times().duration());
        let second = changed(&mut lease_until).await.unwrap();
        assert!(second >= first + times().retry_period(), "{first:?} {second:?}");
        assert!(second <= clock::now() + times().duration(), "counted from before the request was sent");
        thread.resign().await;
        assert_eq!(*lease_until.borrow(), None, "the Lease is released");
    }

    #[tokio::test]
    async fn a_renewal_whose_response_is_lost_does_not_end_leadership() {
        let server = FakeApiServer::default();
        let mut thread = leader(&server).await;
        let mut lease_until = thread.lease_until();
        let first = *lease_until.borrow_and_update();
        server.lose_next_response();
        let second = changed(&mut lease_until).await;
        assert!(second > first, "it is renewed again: {second:?}");
        assert_eq!(server.conflicts(), 1, "the write after the lost response was refused");
        assert!(thread.lost.try_recv().is_err(), "leadership is not lost");
        thread.resign().await;
        assert_eq!(server.holder().as_deref(), Some(""));
    }

    #[tokio::test]
    async fn a_lease_of_another_process_ends_leadership() {
        let server = FakeApiServer::default();
        let mut thread = leader(&server).await;
        let mut lease_until = thread.lease_until();
        server.acquire("other");
        assert_eq!(thread.lost().await, "another process has acquired or released the Lease");
        assert_eq!(*lease_until.borrow_and_update(), None, "it is not held any longer");
        assert_eq!(server.holder().as_deref(), Some("other"));
        drop(thread);
    }

    #[tokio::test]
    async fn a_deleted_lease_is_created_again() {
        let server = FakeApiServer::default();
        let thread = leader(&server).await;
        let mut lease_until = thread.lease_until();
        lease_until.borrow_and_update();
        server.delete();
        changed(&mut lease_until).await.unwrap();
        assert_eq!(server.holder().as_deref(), Some("me"));
        thread.resign().await;
    }

    #[tokio::test]
    async fn a_leader_without_answers_stops_before_the_lease_ends() {
        let server = FakeApiServer::default();
        let mut thread = leader(&server).await;
        let lease_until = thread.lease_until();
        server.hang();
        let held_until = lease_until.borrow().unwrap();
        let why = thread.lost().await;
        assert!(why.starts_with("the Lease could not be renewed"), "{why}");
        assert!(clock::now() < held_until, "it stops before the Lease ends");
        drop(thread);
    }

    #[tokio::test]
    async fn a_release_that_is_not_answered_ends_after_a_limit() {
        let server = FakeApiServer::default();
        let thread = leader(&server).await;
        server.hang();
        let limit = Duration::from_millis(100);
        let resigned = tokio::time::timeout(Duration::from_secs(10), thread.resign_within(limit)).await;
        assert!(resigned.is_ok(), "the manager waits for the API server");
    }

    #[tokio::test]
    async fn a_process_is_a_standby_while_another_holds_the_lease() {
        let server = FakeApiServer::default();
        server.acquire("other");
        let standby = Arc::new(AtomicBool::new(false));
        let mut thread = start(&server, &standby);
        let lease_until = thread.lease_until();
        while !standby.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(*lease_until.borrow(), None);
        // A fault that passes does not end a standby.
        server.lose_next_response();
        server.acquire("");
        thread.acquired().await.unwrap();
        assert!(!standby.load(Ordering::Acquire));
        thread.resign().await;
    }
}
