//! Requests whose responses take limited memory, and the lines of a watch.

use std::{mem, ops::Deref};

use chandler_core::{failure::cause, reachability::ANSWER_TIMEOUT};
use http::{HeaderValue, Request, Response, header::ACCEPT_ENCODING};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use kube::{Client, client::Body, core::Status};
use tokio::time::Instant;

use crate::{
    budget::{ClusterBudget, Grant, KeptShare},
    response::{MAX_RESPONSE, UnusableResponse},
    status::failure_status,
    watch_error::WatchError,
};

/// The beginning of an event that is not complete yet takes no memory of the budget.
const FREE_EVENT: usize = 16 << 10;

/// A client of a workload cluster. Clones share its connections.
#[derive(Clone)]
pub struct ClusterClient {
    client: Client,
    budget: ClusterBudget,
}

impl ClusterClient {
    pub fn new(client: Client, budget: ClusterBudget) -> Self {
        Self { client, budget }
    }

    /// Returns an empty share of what is kept of the clusters of the namespace.
    pub fn kept(&self) -> KeptShare {
        self.budget.kept()
    }

    /// Reads a whole response. The request may be sent twice.
    pub async fn read(&self, request: Request<Vec<u8>>) -> Result<Text, WatchError> {
        let response = self.send(request.clone()).await?;
        let grant = self.budget.begin().await?;
        match collect(response.into_body(), grant).await {
            // Other large responses are being read. It waits for them without what it has taken so far.
            Err(WatchError::Busy(_)) => {
                let grant = self.budget.whole(MAX_RESPONSE).await?;
                collect(self.send(request).await?.into_body(), grant).await
            }
            text => text,
        }
    }

    /// Opens a watch.
    pub async fn open(&self, mut request: Request<Vec<u8>>) -> Result<Lines, WatchError> {
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let body = self.send(request).await?.into_body();
        Ok(Lines::new(body, self.budget.event()))
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, WatchError> {
        let response = self.client.send(request.map(Body::from)).await?;
        let code = response.status();
        if !code.is_client_error() && !code.is_server_error() {
            return Ok(response);
        }
        // The client has replaced the body by a small one.
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        let status = body.ok().and_then(|body| failure_status(&body));
        let unknown = || Status::failure("the response says nothing more", "Unknown");
        let status = status.unwrap_or_else(unknown).with_code(code.as_u16());
        Err(kube::Error::Api(status.boxed()).into())
    }
}

/// The text of a response.
pub struct Text {
    bytes: Vec<u8>,
    _grant: Grant,
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body. Each frame is freed before the next one, so that the connection uses its memory again.
async fn collect(mut body: Body, mut grant: Grant) -> Result<Text, WatchError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(unread)?;
        let Some(data) = frame.data_ref() else { continue };
        let size = bytes.len() + data.len();
        grant.extend(size)?;
        if size > bytes.capacity() {
            bytes.reserve_exact(size.next_power_of_two() - bytes.len());
        }
        bytes.extend_from_slice(data);
    }
    Ok(Text { bytes, _grant: grant })
}

fn unread(error: kube::Error) -> WatchError {
    match cause(&error) {
        Some(UnusableResponse::TooLarge(limit)) => WatchError::TooLarge(*limit),
        _ => error.into(),
    }
}

/// The lines of a watch, each an event. Between events it keeps no memory.
pub struct Lines {
    body: Body,
    /// What was received and not returned yet.
    frame: Bytes,
    /// The beginning of a line that is not complete yet.
    begun: Vec<u8>,
    /// The memory of the line, also of the last one that was returned.
    grant: Grant,
    /// When a long line has to be complete.
    deadline: Option<Instant>,
}

impl Lines {
    fn new(body: Body, grant: Grant) -> Self {
        Self { body, frame: Bytes::new(), begun: Vec::new(), grant, deadline: None }
    }

    /// Waits for the next line. `None` means that the watch has ended.
    pub async fn next(&mut self) -> Result<Option<Bytes>, WatchError> {
        if self.begun.is_empty() {
            self.grant.clear();
        }
        loop {
            if let Some(end) = self.frame.iter().position(|byte| *byte == b'\n') {
                let line = self.frame.split_to(end + 1);
                self.deadline = None;
                if self.begun.is_empty() {
                    return Ok(Some(line));
                }
                self.begun.extend_from_slice(&line);
                return Ok(Some(mem::take(&mut self.begun).into()));
            }
            self.begin_line()?;
            match self.next_frame().await? {
                Some(frame) => self.frame = frame,
                None => return Ok(None),
            }
        }
    }

    /// Takes in the beginning of a line.
    fn begin_line(&mut self) -> Result<(), WatchError> {
        let size = self.begun.len() + self.frame.len();
        if size > FREE_EVENT {
            self.grant.extend(size)?;
            self.deadline.get_or_insert_with(|| Instant::now() + ANSWER_TIMEOUT);
        }
        self.begun.extend_from_slice(&mem::take(&mut self.frame));
        Ok(())
    }

    /// Waits for the next part. A long line must be complete soon: meanwhile it takes memory that others need.
    async fn next_frame(&mut self) -> Result<Option<Bytes>, WatchError> {
        let frame = match self.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, self.body.frame())
                .await
                .map_err(|_| WatchError::Unreadable)?,
            None => self.body.frame().await,
        };
        Ok(frame.transpose()?.map(|frame| frame.into_data().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use chandler_core::identity::ClusterKey;
    use futures::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::budget::{ResponseBudgets, SMALL};

    const MOMENT: Duration = Duration::from_secs(1);

    fn budget(name: &str, budgets: &ResponseBudgets) -> ClusterBudget {
        budgets.cluster(&ClusterKey::new("fleet", name))
    }

    #[tokio::test]
    async fn lines_are_found_wherever_frames_begin_and_end() {
        let body = Body::from(b"\"first\"\n\"second\"\nunfinished".to_vec());
        let mut lines = Lines::new(body, budget("blue", &ResponseBudgets::default()).event());
        lines.begun = b"be".to_vec();
        let mut next =
            async || lines.next().await.unwrap().map(|line| String::from_utf8(line.to_vec()).unwrap());
        assert_eq!(next().await.as_deref(), Some("be\"first\"\n"));
        assert_eq!(next().await.as_deref(), Some("\"second\"\n"));
        assert_eq!(next().await, None, "a line that was cut off is no event");
    }

    /// A client of a server that answers each request with so many bytes in chunks, and then stays silent if it does not end.
    fn client(budget: ClusterBudget, bytes: usize, ends: bool) -> ClusterClient {
        let service = service_fn(move |_: Request<Body>| {
            let chunk = Bytes::from(vec![b' '; 64 << 10]);
            let chunks = stream::iter(vec![chunk; bytes >> 16]);
            let rest = if ends { stream::empty::<Bytes>().boxed() } else { stream::pending().boxed() };
            let frames = chunks.chain(rest).map(|chunk: Bytes| Ok::<_, Infallible>(Frame::data(chunk)));
            async move { Ok::<_, BoxError>(Response::new(StreamBody::new(frames))) }
        });
        ClusterClient::new(Client::new(service, "default"), budget)
    }

    fn request() -> Request<Vec<u8>> {
        Request::get("/api/v1/secrets").body(Vec::new()).unwrap()
    }

    /// Starts reads of large responses that do not end.
    fn attack(client: &ClusterClient) -> Vec<tokio::task::JoinHandle<()>> {
        let read = |client: ClusterClient| async move {
            let _ = client.read(request()).await;
        };
        (0..20).map(|_| tokio::spawn(read(client.clone()))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_whose_responses_do_not_end_fails_alone() {
        let budgets = ResponseBudgets::default();
        let hostile = client(budget("hostile", &budgets), 12 << 20, false);
        let attacks = attack(&hostile);
        tokio::time::sleep(MOMENT).await;
        for name in ["one", "two"] {
            for size in [SMALL / 2, 6 << 20] {
                let innocent = client(budget(name, &budgets), size, true);
                let text = tokio::time::timeout(MOMENT, innocent.read(request())).await;
                assert_eq!(text.expect("another cluster does not wait").unwrap().len(), size);
            }
        }
        for attack in attacks {
            attack.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_response_waits_for_others_and_is_read_then() {
        let budgets = ResponseBudgets::default();
        let held: Vec<_> = {
            let names = ["a", "b", "c", "d", "e", "f"].map(|name| budget(name, &budgets));
            futures::future::join_all(
                names.map(|budget| async move { budget.whole(MAX_RESPONSE).await.unwrap() }),
            )
            .await
        };
        let large = client(budget("large", &budgets), 2 << 20, true);
        let small = client(budget("small", &budgets), SMALL, true);
        let waiting = tokio::spawn(async move { large.read(request()).await.map(|text| text.len()) });
        tokio::time::sleep(MOMENT).await;
        assert!(!waiting.is_finished());
        assert_eq!(small.read(request()).await.unwrap().len(), SMALL, "small responses do not wait");
        drop(held);
        assert_eq!(waiting.await.unwrap().unwrap(), 2 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_never_complete_is_given_up_and_returns_its_memory() {
        let budgets = ResponseBudgets::default();
        let hostile = client(budget("hostile", &budgets), 3 << 20, false);
        let mut lines = hostile.open(request()).await.unwrap();
        let mut second = hostile.open(request()).await.unwrap();
        let first = tokio::spawn(async move { lines.next().await.map(drop) });
        tokio::time::sleep(MOMENT).await;
        assert!(matches!(second.next().await, Err(WatchError::Busy(_))), "the cluster has used its memory");
        let mut innocent = client(budget("innocent", &budgets), 3 << 20, true).open(request()).await.unwrap();
        assert!(matches!(innocent.next().await, Ok(None)), "another cluster is not affected");
        assert!(matches!(first.await.unwrap(), Err(WatchError::Unreadable)));
        drop(second);
        let mut third = hostile.open(request()).await.unwrap();
        assert!(matches!(third.next().await, Err(WatchError::Unreadable)));
    }
}
