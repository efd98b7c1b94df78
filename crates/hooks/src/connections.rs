//! The open connections to the hooks.

use std::net::IpAddr;

use tokio::task::{AbortHandle, JoinSet};

use crate::admission::{OpenConnection, Place, Progress, place};

/// The open connections. They end when this is dropped.
#[derive(Default)]
pub struct Connections {
    tasks: JoinSet<()>,
    /// From the oldest to the newest.
    open: Vec<(OpenConnection, AbortHandle)>,
    /// The number of connections so far.
    accepted: u64,
}

impl Connections {
    /// Serves a connection. If there are too many, another one ends whose request is not complete, or this one waits.
    pub async fn serve<F>(&mut self, client: IpAddr, serve: impl FnOnce(Progress) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let client = client.to_canonical();
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.open.retain(|(_, task)| !task.is_finished());
            match place(self.open.iter().map(|(connection, _)| connection)) {
                Place::Free => break,
                Place::Replace(id) => {
                    tracing::debug!(%client, "too many connections to the hooks, an idle one is closed");
                    self.close(id);
                }
                Place::Wait => {
                    self.tasks.join_next().await;
                }
            }
        }
        let progress = Progress::default();
        let task = self.tasks.spawn(serve(progress.clone()));
        self.accepted += 1;
        self.open.push((OpenConnection { id: self.accepted, client, progress }, task));
    }

    /// Closes a connection, unless its request is handled now.
    fn close(&mut self, id: u64) {
        self.open.retain(|(connection, task)| {
            let is_closed = connection.id == id && connection.progress.close();
            if is_closed {
                task.abort();
            }
            !is_closed
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use tokio::{sync::Notify, task::yield_now, time::timeout};

    use super::*;
    use crate::admission::MAX_CONNECTIONS;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const MOMENT: Duration = Duration::from_millis(100);

    /// Calls that are handled until they are notified.
    #[derive(Clone, Default)]
    struct Calls {
        begun: Arc<AtomicUsize>,
        end: Arc<Notify>,
        answered: Arc<AtomicUsize>,
    }

    impl Calls {
        async fn call(self, progress: Progress) {
            progress.begin_handling();
            self.begun.fetch_add(1, Ordering::Relaxed);
            self.end.notified().await;
            self.answered.fetch_add(1, Ordering::Relaxed);
        }

        /// Waits until this many calls have begun.
        async fn wait_begun(&self, count: usize) {
            let begun = async {
                while self.begun.load(Ordering::Relaxed) < count {
                    yield_now().await;
                }
            };
            timeout(Duration::from_secs(30), begun).await.expect("the calls begin");
        }
    }

    #[tokio::test]
    async fn a_call_that_is_handled_is_never_cut() {
        let (mut connections, calls) = (Connections::default(), Calls::default());
        for _ in 0..MAX_CONNECTIONS {
            connections.serve(CLIENT, |progress| calls.clone().call(progress)).await;
        }
        calls.wait_begun(MAX_CONNECTIONS).await;
        let waiting =
            timeout(MOMENT, connections.serve(CLIENT, |progress| calls.clone().call(progress))).await;
        assert!(waiting.is_err(), "it waits until a call has ended");
        calls.end.notify_one();
        timeout(MOMENT, connections.serve(CLIENT, |progress| calls.clone().call(progress))).await.unwrap();
        calls.wait_begun(MAX_CONNECTIONS + 1).await;
        calls.end.notify_waiters();
        while connections.tasks.join_next().await.is_some() {}
        assert_eq!(calls.answered.load(Ordering::Relaxed), MAX_CONNECTIONS + 1, "each call is answered");
    }

    #[tokio::test]
    async fn idle_connections_make_room_for_calls_of_the_same_client() {
        let (mut connections, calls) = (Connections::default(), Calls::default());
        for _ in 0..2 * MAX_CONNECTIONS {
            timeout(MOMENT, connections.serve(CLIENT, |_| pending()))
                .await
                .expect("idle connections are replaced");
        }
        for count in 1..=MAX_CONNECTIONS {
            timeout(MOMENT, connections.serve(CLIENT, |progress| calls.clone().call(progress)))
                .await
                .unwrap();
            calls.wait_begun(count).await;
        }
        calls.end.notify_waiters();
        while calls.answered.load(Ordering::Relaxed) < MAX_CONNECTIONS {
            timeout(MOMENT, connections.tasks.join_next()).await.expect("each call is answered");
        }
    }
}
