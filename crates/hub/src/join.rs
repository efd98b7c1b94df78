//! Gives certificates to agents: one HTTP/1.1 request per connection, with a join token or with an older certificate.

mod decide;
mod limits;

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use chandler_tunnel::{
    CertificateFacts, TunnelIdentity,
    join_message::{JOIN_PATH, JoinRefusal, JoinRequest, JoinResponse, MAX_JOIN_BYTES},
};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::decide::{Grant, JoinError, Proof, decide};
use self::limits::{JoinLimits, TooMany};
use crate::{
    directory::DirectoryReceiver,
    keys_watch::KeysReceiver,
    locks::Mutex,
    metrics::{JoinResult, Metrics},
    report::{JoinReport, Reporter},
};

/// Limit of a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request to join is refused.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("this address serves only POST {JOIN_PATH}")]
    WrongPath,
    #[error("the request is not a join request, or has more than {MAX_JOIN_BYTES} bytes")]
    Malformed,
    #[error("too many agents join; retry later")]
    TooMany(TooMany),
    #[error(transparent)]
    Identity(#[from] JoinError),
    #[error("the certificate signing request is refused: {0}")]
    Request(chandler_tunnel::authority::AuthorityError),
}

impl Refused {
    fn status(&self) -> StatusCode {
        match self {
            Self::WrongPath => StatusCode::NOT_FOUND,
            Self::Malformed | Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Identity(error) => error.status(),
        }
    }

    fn result(&self) -> JoinResult {
        match self {
            Self::WrongPath | Self::Malformed | Self::Request(_) => JoinResult::Invalid,
            Self::TooMany(_) => JoinResult::Limited,
            Self::Identity(_) => JoinResult::Refused,
        }
    }
}

/// The join endpoint. Clones share the limits.
#[derive(Clone)]
pub struct JoinEndpoint {
    keys: KeysReceiver,
    directory: DirectoryReceiver,
    reporter: Arc<dyn Reporter>,
    metrics: Metrics,
    limits: Arc<Mutex<JoinLimits>>,
}

/// The client of a connection.
struct Client {
    address: SocketAddr,
    /// Verified by TLS.
    certificate: Option<CertificateFacts>,
}

impl JoinEndpoint {
    pub fn new(
        keys: KeysReceiver,
        directory: DirectoryReceiver,
        reporter: Arc<dyn Reporter>,
        metrics: Metrics,
    ) -> Self {
        let limits = Arc::new(Mutex::new(JoinLimits::new(Instant::now())));
        Self { keys, directory, reporter, metrics, limits }
    }

    /// Serves one request. `certificate` is the client certificate, if there is one.
    pub async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        address: SocketAddr,
        certificate: Option<CertificateFacts>,
    ) {
        let client = Client { address, certificate };
        let respond = |request| async { Ok::<_, Infallible>(self.respond(request, &client).await) };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(CONNECTION_TIMEOUT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service_fn(respond));
        match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, %address, "a connection to join failed"),
            Err(_) => tracing::debug!(%address, "a connection to join timed out"),
        }
    }

    async fn respond(&self, request: Request<Incoming>, client: &Client) -> Response<Full<Bytes>> {
        match self.join(request, client).await {
            Ok(certificate) => json(StatusCode::OK, &JoinResponse { certificate }),
            Err(refused) => {
                self.metrics.join(refused.result());
                tracing::info!(address = %client.address, %refused, "an agent was refused");
                let mut response = json(refused.status(), &JoinRefusal { message: refused.to_string() });
                if let Refused::TooMany(TooMany { retry_after }) = refused {
                    let seconds = HeaderValue::from(retry_after.as_secs() + 1);
                    response.headers_mut().insert(RETRY_AFTER, seconds);
                }
                response
            }
        }
    }

    /// Returns the certificate chain in PEM.
    async fn join(&self, request: Request<Incoming>, client: &Client) -> Result<String, Refused> {
        if request.method() != Method::POST || request.uri().path() != JOIN_PATH {
            return Err(Refused::WrongPath);
        }
        let (request, grant) = match self.verify(request.into_body(), client).await {
            Ok(verified) => verified,
            Err(refused) => {
                self.count_failure(client).map_err(Refused::TooMany)?;
                return Err(refused);
            }
        };
        self.limits.lock().tunnel(grant.identity.tunnel, Instant::now()).map_err(Refused::TooMany)?;
        let certificate = self.sign(&request, grant.identity)?;
        self.report(grant, client);
        Ok(certificate)
    }

    /// Reads a request and verifies its token or certificate.
    async fn verify(&self, body: Incoming, client: &Client) -> Result<(JoinRequest, Grant), Refused> {
        let body = Limited::new(body, MAX_JOIN_BYTES).collect().await;
        let body = body.map_err(|_| Refused::Malformed)?.to_bytes();
        let request: JoinRequest = serde_json::from_slice(&body).map_err(|_| Refused::Malformed)?;
        let grant = self.decide(&request, client)?;
        Ok((request, grant))
    }

    /// Counts a request that is refused. The others count only for their tunnel: anyone can send invalid ones, and must not keep
    /// agents out.
    fn count_failure(&self, client: &Client) -> Result<(), TooMany> {
        let (mut limits, now) = (self.limits.lock(), Instant::now());
        if client.certificate.is_some() { limits.certified_failure(now) } else { limits.failure(now) }
    }

    fn decide(&self, request: &JoinRequest, client: &Client) -> Result<Grant, JoinError> {
        let keys = self.keys.borrow().clone();
        let directory = self.directory.borrow().clone();
        let proof = Proof { token: request.token.as_ref(), certificate: client.certificate.as_ref() };
        let decision =
            decide(&directory, keys.keys.installation, &keys.keys.signing, proof, Timestamp::now());
        if let Err(error) = &decision
            && let Some(tunnel) = error.tunnel()
            && self.limits.lock().reports_refusal(tunnel.id, Instant::now())
        {
            let (from, message) = (client.address.ip().to_string(), error.to_string());
            self.reporter.join(tunnel, JoinReport::Refused { from, message });
        }
        decision
    }

    fn sign(&self, request: &JoinRequest, identity: TunnelIdentity) -> Result<String, Refused> {
        let keys = self.keys.borrow().clone();
        keys.keys.authority.sign_agent(&request.csr, identity, Timestamp::now()).map_err(Refused::Request)
    }

    fn report(&self, grant: Grant, client: &Client) {
        let (tunnel, epoch) = (grant.identity.key(), grant.identity.epoch);
        let from = client.address.ip().to_string();
        tracing::info!(tunnel = %tunnel.id, epoch, renewal = grant.renewal, from, "an agent got a certificate");
        if grant.renewal {
            self.metrics.join(JoinResult::Renewed);
            self.reporter.join(tunnel, JoinReport::Renewed { epoch });
        } else {
            self.metrics.join(JoinResult::Joined);
            self.reporter.join(tunnel, JoinReport::Joined { epoch, from });
        }
    }
}

fn json(status: StatusCode, body: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
