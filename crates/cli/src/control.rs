//! A running manager can be asked and told things by whoever may act as it: over a socket in its own folder, never over
//! the network.

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

const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: u64 = 4096;
const REFUSED: &str = "error: ";

/// Where the manager with this store is asked.
pub fn socket(store: &Path) -> PathBuf {
    store.join("control.sock")
}

/// Answers for as long as the process lives. Nothing else depends on it: a manager that cannot be asked works on.
pub fn serve(socket: PathBuf, level: LogLevel) {
    tokio::spawn(async move {
        match listen(&socket).await {
            Ok(listener) => accept(listener, level).await,
            Err(error) => tracing::warn!("`chandler log-level` has no effect here: {error:#}"),
        }
    });
}

/// Asks a manager.
pub async fn ask(socket: &Path, question: &str) -> Result<String> {
    let asking = async {
        let mut stream = UnixStream::connect(socket).await.with_context(|| {
            format!("no manager answers at {}: run this where it runs, or name its --store", socket.display())
        })?;
        stream.write_all(format!("{question}\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.take(LONGEST).read_to_string(&mut answer).await?;
        Ok::<_, anyhow::Error>(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await.context("the manager does not answer")??;
    match answer.trim_end().strip_prefix(REFUSED) {
        Some(why) => bail!("{why}"),
        None => Ok(answer.trim_end().to_owned()),
    }
}

async fn listen(socket: &Path) -> Result<UnixListener> {
    let at = || format!("listening at {}", socket.display());
    if UnixStream::connect(socket).await.is_ok() {
        bail!("another manager answers at {}", socket.display());
    }
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder).with_context(at)?;
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).with_context(at),
        _ => {}
    }
    let listener = UnixListener::bind(socket).with_context(at)?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600)).with_context(at)?;
    Ok(listener)
}

async fn accept(listener: UnixListener, level: LogLevel) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let level = level.clone();
                tokio::spawn(async move {
                    // Whoever asked and does not wait for the answer has none.
                    let _ = tokio::time::timeout(PATIENCE, answer(stream, &level)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot take a question to the manager");
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, level: &LogLevel) -> std::io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut question = String::new();
    BufReader::new(reading.take(LONGEST)).read_line(&mut question).await?;
    let said = match question.trim().split_once(' ').unwrap_or((question.trim(), "")) {
        ("log-level", "") => level.get(),
        ("log-level", wanted) => match level.set(wanted) {
            Ok(()) => level.get(),
            Err(error) => format!("{REFUSED}{error:#}"),
        },
        _ => format!("{REFUSED}the manager does not understand this; is it of the same version?"),
    };
    writing.write_all(format!("{said}\n").as_bytes()).await
}
