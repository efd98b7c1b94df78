//! Opens a stream on the first of several connections that can.

use std::{collections::VecDeque, time::Duration};

use chandler_tunnel::{AgentConnection, OpenError, PeerConnection, TunnelKey, TunnelStream};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};

use crate::{
    agents::Agents,
    peers::Peers,
    proxy::{LastSeen, Refusal},
};

/// Limit of opening a stream. Cluster API probes with a timeout of 5 s.
pub const OPEN_DEADLINE: Duration = Duration::from_secs(4);
/// If a connection has not answered after this time, the next one is tried as well: the link of the first may be dead, which
/// only its next ping finds out.
const NEXT_AFTER: Duration = Duration::from_secs(1);

/// The status with which a replica answers another one if it has no connection to an agent.
pub const NO_AGENT: u16 = 404;
/// The status with which a replica answers another one if all connections have reached their limit of streams.
pub const STREAM_LIMIT: u16 = 503;

type Attempt = BoxFuture<'static, Result<TunnelStream, OpenError>>;

/// Opens a stream on a connection of this replica, for another one that knows the tunnel in this epoch. Peers get the error,
/// with [`NO_AGENT`] and [`STREAM_LIMIT`].
pub async fn open_here(agents: &Agents, tunnel: TunnelKey, epoch: u32) -> Result<TunnelStream, OpenError> {
    let attempts = first(local(agents, tunnel, epoch), NEXT_AFTER);
    let errors = match tokio::time::timeout(OPEN_DEADLINE, attempts).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(errors)) => errors,
        Err(_) => vec![OpenError::Timeout(OPEN_DEADLINE)],
    };
    Err(match combine(&errors) {
        Failure::NoAgent => refused(NO_AGENT, "no agent is connected to this hub"),
        Failure::StreamLimit => refused(STREAM_LIMIT, "the connections have no room for another stream"),
        Failure::Timeout => OpenError::Timeout(OPEN_DEADLINE),
        Failure::Agent(message) => refused(502, &message),
    })
}

fn refused(status: u16, message: &str) -> OpenError {
    OpenError::Refused { status, message: message.to_owned() }
}

/// Opens a stream on a connection of this replica, or through another replica.
pub async fn open(
    agents: &Agents,
    peers: &Peers,
    tunnel: TunnelKey,
    epoch: u32,
    last_seen: LastSeen,
) -> Result<TunnelStream, Refusal> {
    let mut attempts = local(agents, tunnel, epoch);
    let forwarded =
        |peer: PeerConnection| async move { peer.open(tunnel, epoch, OPEN_DEADLINE).await }.boxed();
    attempts.extend(peers.connections().into_iter().map(forwarded));
    let errors = match tokio::time::timeout(OPEN_DEADLINE, first(attempts, NEXT_AFTER)).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(errors)) => errors,
        Err(_) => return Err(Refusal::Timeout { deadline: OPEN_DEADLINE }),
    };
    Err(match combine(&errors) {
        Failure::NoAgent => Refusal::NoAgent { last_seen },
        Failure::StreamLimit => Refusal::StreamLimit,
        Failure::Timeout => Refusal::Timeout { deadline: OPEN_DEADLINE },
        Failure::Agent(message) => Refusal::Agent { message },
    })
}

fn local(agents: &Agents, tunnel: TunnelKey, epoch: u32) -> Vec<Attempt> {
    let opened = |connection: AgentConnection| {
        async move { connection.open(OPEN_DEADLINE).await.map_err(of_agent) }.boxed()
    };
    agents.connections(tunnel, epoch).into_iter().map(opened).collect()
}

/// An agent that refuses has a problem with its API server, whatever status it chooses.
fn of_agent(error: OpenError) -> OpenError {
    match error {
        OpenError::Refused { message, .. } => OpenError::Refused { status: 502, message },
        other => other,
    }
}

/// Runs attempts one after the other, the next one when an attempt failed or has taken `next_after`. Returns the first
/// stream, or the errors of all.
async fn first(attempts: Vec<Attempt>, next_after: Duration) -> Result<TunnelStream, Vec<OpenError>> {
    let mut waiting = VecDeque::from(attempts);
    let mut running: FuturesUnordered<Attempt> = waiting.pop_front().into_iter().collect();
    let mut errors = Vec::new();
    loop {
        tokio::select! {
            ended = running.next() => match ended {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => {
                    errors.push(error);
                    running.extend(waiting.pop_front());
                }
                None => return Err(errors),
            },
            () = tokio::time::sleep(next_after), if !waiting.is_empty() => {
                running.extend(waiting.pop_front());
            }
        }
    }
}

/// What several failed attempts mean together.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    NoAgent,
    StreamLimit,
    Timeout,
    /// The message of an agent.
    Agent(String),
}

/// Returns the failure that says most: an agent that answered, then one that did not, then one without room.
fn combine(errors: &[OpenError]) -> Failure {
    let message = errors.iter().find_map(|error| match error {
        OpenError::Refused { status, message } if ![NO_AGENT, STREAM_LIMIT, 504].contains(status) => {
            Some(message.clone())
        }
        _ => None,
    });
    if let Some(message) = message {
        return Failure::Agent(message);
    }
    let is_timeout =
        |error: &OpenError| matches!(error, OpenError::Timeout(_) | OpenError::Refused { status: 504, .. });
    let is_limit = |error: &OpenError| {
        matches!(error, OpenError::TooManyStreams | OpenError::Refused { status: STREAM_LIMIT, .. })
    };
    if errors.iter().any(is_timeout) {
        Failure::Timeout
    } else if errors.iter().any(is_limit) {
        Failure::StreamLimit
    } else {
        Failure::NoAgent
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[test]
    fn the_failure_that_says_most_is_returned() {
        let no_agent = || refused(NO_AGENT, "none");
        let limit = || refused(STREAM_LIMIT, "full");
        let late = || OpenError::Timeout(OPEN_DEADLINE);
        let rows = [
            ("nothing tried", vec![], Failure::NoAgent),
            ("no peer has an agent", vec![no_agent(), no_agent()], Failure::NoAgent),
            (
                "lost while opening",
                vec![OpenError::Closing, OpenError::Failed("x".to_owned())],
                Failure::NoAgent,
            ),
            ("full here", vec![OpenError::TooManyStreams, no_agent()], Failure::StreamLimit),
            ("full at a peer", vec![no_agent(), limit()], Failure::StreamLimit),
            ("slow", vec![limit(), late()], Failure::Timeout),
            ("slow at a peer", vec![refused(504, "slow")], Failure::Timeout),
            ("an answer", vec![late(), refused(502, "refused")], Failure::Agent("refused".to_owned())),
        ];
        for (case, errors, expected) in rows {
            assert_eq!(combine(&errors), expected, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_connection_is_tried_after_a_failure_or_a_pause() {
        let started = Arc::new(AtomicUsize::new(0));
        let attempt = |duration: Duration| -> Attempt {
            let started = started.clone();
            async move {
                started.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(duration).await;
                Err(OpenError::Closing)
            }
            .boxed()
        };
        let begin = tokio::time::Instant::now();
        let slow = Duration::from_secs(10);
        let attempts = vec![attempt(Duration::ZERO), attempt(slow), attempt(slow)];
        let running = first(attempts, Duration::from_secs(1));
        let mut running = std::pin::pin!(running);
        assert!(tokio::time::timeout(Duration::from_millis(500), &mut running).await.is_err());
        assert_eq!(started.load(Ordering::Relaxed), 2, "the first failed, the second is slow");
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut running).await.is_err());
        assert_eq!(started.load(Ordering::Relaxed), 3, "the third is tried while the second is slow");
        assert_eq!(running.await.unwrap_err().len(), 3);
        assert!(begin.elapsed() < Duration::from_secs(12), "the last two run at the same time");
    }
}
