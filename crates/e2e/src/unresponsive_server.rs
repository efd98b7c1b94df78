//! A TLS endpoint in front of a real API server that leaves some requests unanswered.

use std::{path::Path, sync::Arc};

use chandler_sandbox::certificates::Authority;
use http::{Request, header::ACCEPT};
use kube::Client;
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Which requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// TLS is established, and nothing follows.
    Nothing,
    AllButWatches,
}

/// The endpoint. It ends when this is dropped.
pub struct UnresponsiveServer {
    port: u16,
    authority: String,
    task: JoinHandle<()>,
}

impl Drop for UnresponsiveServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl UnresponsiveServer {
    /// Starts the endpoint. Requests that are answered go to the API server of `upstream`.
    pub async fn start(folder: &Path, upstream: Client, answers: Answers) -> Self {
        let authority = Authority::open(folder, "unresponsive").unwrap();
        let pair = authority.server(&[]).unwrap();
        let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, tls.clone(), upstream.clone(), answers));
            }
        });
        Self { port, authority: authority.certificate().to_owned(), task }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns a kubeconfig for the endpoint.
    pub fn kubeconfig(&self) -> String {
        use base64::{Engine as _, prelude::BASE64_STANDARD};
        let authority = BASE64_STANDARD.encode(&self.authority);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:{}', certificate-authority-data: {authority}}}}}]\n\
             users: [{{name: u, user: {{token: unused}}}}]\n",
            self.port
        )
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, upstream: Client, answers: Answers) {
    let Ok(mut stream) = tls.accept(stream).await else { return };
    while let Some(head) = request_head(&mut stream).await {
        if answers == Answers::Nothing || head.contains("watch=true") {
            std::future::pending::<()>().await;
        }
        let answer = forward(&upstream, &head).await;
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads the head of a request without a body.
async fn request_head(stream: &mut TlsStream<TcpStream>) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

async fn forward(upstream: &Client, head: &str) -> String {
    let path = head.split_ascii_whitespace().nth(1).unwrap();
    let headers = head.lines().filter_map(|line| line.split_once(": "));
    let mut accept = headers.filter(|(name, _)| name.eq_ignore_ascii_case("accept")).map(|(_, value)| value);
    let request = Request::get(path).header(ACCEPT, accept.next().unwrap_or("application/json"));
    let body = upstream.request_text(request.body(Vec::new()).unwrap()).await.unwrap();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
