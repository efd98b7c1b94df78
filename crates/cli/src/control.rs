//! Controls a running manager over a Unix socket in its store. Only processes with the manager's own file permissions
//! can connect; there is no access over the network.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
};

use crate::logging::LogLevel;

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_MESSAGE_BYTES: u64 = 4096;
const ERROR_PREFIX: &str = "error: ";

/// Returns the path of the control socket of the manager with this store.
pub fn socket_path(store: &Path) -> PathBuf {
    store.join("control.sock")
}

/// Serves control requests in the background. If the socket cannot be opened, logs a warning; the manager runs without
/// it.
pub fn serve(socket: PathBuf, level: LogLevel) {
    tokio::spawn(async move {
        match listen(&socket).await {
            Ok(listener) => accept(listener, level).await,
            Err(error) => tracing::warn!(
                "the control socket is unavailable, `chandler log-level` does not work: {error:#}"
            ),
        }
    });
}

/// Sends a request to a manager and returns its response.
pub async fn request(socket: &Path, request: &str) -> Result<String> {
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await.with_context(|| {
            format!(
                "no manager is listening at {}: run this command in the manager's Pod, or set its --store",
                socket.display()
            )
        })?;
        stream.write_all(format!("{request}\n").as_bytes()).await?;
        let mut response = String::new();
        stream.take(MAX_MESSAGE_BYTES).read_to_string(&mut response).await?;
        Ok::<_, anyhow::Error>(response)
    };
    let response =
        tokio::time::timeout(TIMEOUT, exchange).await.context("the manager does not respond in time")??;
    match response.trim_end().strip_prefix(ERROR_PREFIX) {
        Some(error) => bail!("{error}"),
        None => Ok(response.trim_end().to_owned()),
    }
}

async fn listen(socket: &Path) -> Result<UnixListener> {
    let listening = || format!("listening at {}", socket.display());
    if UnixStream::connect(socket).await.is_ok() {
        bail!("another manager is listening at {}", socket.display());
    }
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory).with_context(listening)?;
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(listening);
        }
        _ => {}
    }
    let listener = UnixListener::bind(socket).with_context(listening)?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600)).with_context(listening)?;
    Ok(listener)
}

async fn accept(listener: UnixListener, level: LogLevel) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let level = level.clone();
                tokio::spawn(async move {
                    // The client may have disconnected.
                    let _ = tokio::time::timeout(TIMEOUT, respond(stream, &level)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control connection");
                tokio::time::sleep(TIMEOUT).await;
            }
        }
    }
}

async fn respond(stream: UnixStream, level: &LogLevel) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut request = String::new();
    BufReader::new(reader.take(MAX_MESSAGE_BYTES)).read_line(&mut request).await?;
    let response = match request.trim().split_once(' ').unwrap_or((request.trim(), "")) {
        ("log-level", "") => level.get(),
        ("log-level", new) => match level.set(new) {
            Ok(()) => level.get(),
            Err(error) => format!("{ERROR_PREFIX}{error:#}"),
        },
        _ => {
            format!("{ERROR_PREFIX}the manager does not support this request; does it have the same version?")
        }
    };
    writer.write_all(format!("{response}\n").as_bytes()).await
}
