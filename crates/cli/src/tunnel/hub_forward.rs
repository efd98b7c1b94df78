//! A local port that leads to the proxy of the hub, through the API server of the management cluster.

use std::{ffi::OsString, net::Ipv4Addr, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader, Lines, copy_bidirectional},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdout, Command},
    sync::Mutex,
    time::timeout,
};

use crate::{connection::Connection, tunnel_flags::PROXY_PORT};

/// A port-forward that is not open after this time has failed.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of the output of a kubectl that failed.
const MAX_ERROR_BYTES: u64 = 4096;

/// Listens on a local port and forwards its connections to the hub. A hub that is replaced costs open connections only: the
/// next one starts another port-forward.
pub struct HubForward {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl HubForward {
    /// Starts the first port-forward, so that its errors are known at once, and listens.
    pub async fn start(connection: Connection, namespace: String) -> Result<Self> {
        let forwards = Arc::new(PortForwards { connection, namespace, running: Mutex::default() });
        forwards.port().await?;
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listening on a local port")?;
        let port = listener.local_addr().context("listening on a local port")?.port();
        Ok(Self { port, task: tokio::spawn(serve(listener, forwards)) })
    }

    /// Returns the local address.
    pub fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }
}

impl Drop for HubForward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, forwards: Arc<PortForwards>) {
    while let Ok((client, _)) = listener.accept().await {
        let forwards = forwards.clone();
        tokio::spawn(async move {
            if let Err(error) = forward(client, &forwards).await {
                eprintln!("cannot reach the hub: {error:#}");
            }
        });
    }
}

async fn forward(mut client: TcpStream, forwards: &PortForwards) -> Result<()> {
    let port = forwards.port().await?;
    let mut hub = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.context("connecting to kubectl")?;
    // A client that disconnects is no error.
    let _ = copy_bidirectional(&mut client, &mut hub).await;
    Ok(())
}

/// Runs `kubectl port-forward`, again whenever it has ended.
struct PortForwards {
    connection: Connection,
    namespace: String,
    running: Mutex<Option<PortForward>>,
}

/// A running kubectl. It is killed when dropped.
struct PortForward {
    child: Child,
    port: u16,
}

impl PortForwards {
    /// Returns the port of the running kubectl, or starts one.
    async fn port(&self) -> Result<u16> {
        let mut running = self.running.lock().await;
        if let Some(PortForward { child, port }) = &mut *running
            && matches!(child.try_wait(), Ok(None))
        {
            return Ok(*port);
        }
        let started = PortForward::start(&self.connection, &self.namespace).await?;
        Ok(running.insert(started).port)
    }
}

impl PortForward {
    async fn start(connection: &Connection, namespace: &str) -> Result<Self> {
        let mut command = Command::new("kubectl");
        command.args(arguments(connection, namespace));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context(
            "starting kubectl, which forwards a port to the hub; install it, or name an address of the hub with --hub",
        )?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let stdout = stdout.context("reading the output of kubectl")?;
        let opened = timeout(OPEN_TIMEOUT, read_port(BufReader::new(stdout).lines())).await;
        match opened {
            Ok(Some((port, rest))) => {
                tokio::spawn(discard(rest));
                tokio::spawn(discard_errors(stderr));
                Ok(Self { child, port })
            }
            Ok(None) => bail!(
                "kubectl cannot forward a port to Service {namespace}/chandler-hub: {}",
                text(stderr).await
            ),
            Err(_) => bail!(
                "kubectl did not forward a port to Service {namespace}/chandler-hub within {} s",
                OPEN_TIMEOUT.as_secs()
            ),
        }
    }
}

/// Returns the arguments of kubectl. It selects the management cluster as this command does.
fn arguments(connection: &Connection, namespace: &str) -> Vec<OsString> {
    let Connection { kubeconfig, context } = connection;
    let mut arguments: Vec<OsString> = Vec::new();
    if let Some(path) = kubeconfig {
        arguments.extend(["--kubeconfig".into(), path.into()]);
    }
    if let Some(context) = context {
        arguments.extend(["--context".into(), context.into()]);
    }
    arguments.extend(["--namespace".into(), namespace.into()]);
    arguments.extend(["port-forward".into(), "--address".into(), Ipv4Addr::LOCALHOST.to_string().into()]);
    arguments.extend(["service/chandler-hub".into(), format!(":{PROXY_PORT}").into()]);
    arguments
}

/// Reads the local port from the output of kubectl. Returns `None` if kubectl ends before.
async fn read_port(mut lines: Lines<BufReader<ChildStdout>>) -> Option<(u16, Lines<BufReader<ChildStdout>>)> {
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(port) = local_port(&line) {
            return Some((port, lines));
        }
    }
    None
}

/// Returns the port in a line such as `Forwarding from 127.0.0.1:40000 -> 8132`.
fn local_port(line: &str) -> Option<u16> {
    let rest = line.strip_prefix("Forwarding from ")?;
    let (address, _) = rest.split_once(" -> ")?;
    address.rsplit_once(':')?.1.parse().ok()
}

/// Reads the rest of the output, so that kubectl does not block.
async fn discard(mut lines: Lines<BufReader<ChildStdout>>) {
    while let Ok(Some(_)) = lines.next_line().await {}
}

async fn discard_errors(stderr: Option<impl AsyncRead + Unpin>) {
    if let Some(mut stderr) = stderr {
        let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    }
}

async fn text(stderr: Option<impl AsyncRead + Unpin>) -> String {
    let mut text = Vec::new();
    if let Some(stderr) = stderr {
        // The message is best effort.
        let _ = timeout(OPEN_TIMEOUT, stderr.take(MAX_ERROR_BYTES).read_to_end(&mut text)).await;
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_the_output_of_kubectl() {
        let rows = [
            ("Forwarding from 127.0.0.1:40000 -> 8132", Some(40_000)),
            ("Forwarding from [::1]:40001 -> 8132", Some(40_001)),
            ("Handling connection for 40000", None),
            ("", None),
        ];
        for (line, port) in rows {
            assert_eq!(local_port(line), port, "{line}");
        }
    }

    #[test]
    fn kubectl_uses_the_same_management_cluster() {
        let connection = Connection { kubeconfig: Some("/a/b".into()), context: Some("kind".to_owned()) };
        let text = arguments(&connection, "chandler-system").join(std::ffi::OsStr::new(" "));
        assert_eq!(
            text,
            "--kubeconfig /a/b --context kind --namespace chandler-system port-forward --address 127.0.0.1 \
             service/chandler-hub :8132"
        );
    }
}
