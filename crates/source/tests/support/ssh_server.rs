//! An ssh server that runs `git upload-pack`.

use std::{
    collections::HashMap,
    future,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use russh::{
    Channel, ChannelId, ChannelMsg,
    keys::{PrivateKey, PublicKey},
    server::{self, Auth, ChannelOpenHandle, Handler, Msg, Session, VerifiedPublicKey},
};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpListener,
    process::{Child, Command},
    task::{JoinHandle, JoinSet},
};

/// The user that may log in.
pub const USER: &str = "git";

pub struct SshServer {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// What a server serves, and to whom.
#[derive(Clone)]
pub struct SshSettings {
    pub host_keys: Vec<PrivateKey>,
    pub authorized: PublicKey,
    /// Whether the server passes environment variables to Git.
    pub accepts_environment: bool,
    /// Whether the server opens a channel to the client instead of running Git.
    pub opens_channel: bool,
    /// Folder of the repositories.
    pub folder: PathBuf,
}

impl SshServer {
    pub async fn start(settings: SshSettings) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let counter = connections.clone();
        let config = Arc::new(server::Config {
            keys: settings.host_keys.clone(),
            auth_rejection_time: Duration::ZERO,
            ..server::Config::default()
        });
        let task = tokio::spawn(async move {
            let mut sessions = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                let session = GitSession::new(settings.clone());
                let started = server::run_stream(config.clone(), stream, session);
                sessions.spawn(async move {
                    if let Ok(running) = started.await {
                        let _ = running.await;
                    }
                });
            }
        });
        Self { address, connections, task }
    }

    pub fn url(&self, name: &str) -> String {
        format!("ssh://{USER}@{}/{name}.git", self.address)
    }

    /// Returns the number of connections that were opened so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One connection.
struct GitSession {
    settings: SshSettings,
    channels: HashMap<ChannelId, Channel<Msg>>,
    protocol: Option<String>,
}

impl GitSession {
    fn new(settings: SshSettings) -> Self {
        Self { settings, channels: HashMap::new(), protocol: None }
    }

    fn execute(&mut self, id: ChannelId, command: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        let command = String::from_utf8(command.to_vec()).unwrap();
        let path = command.strip_prefix("git-upload-pack '").and_then(|rest| rest.strip_suffix('\''));
        let (Some(path), Some(channel)) = (path, self.channels.remove(&id)) else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        if self.settings.opens_channel {
            let handle = session.handle();
            tokio::spawn(async move {
                let opened = handle.channel_open_forwarded_tcpip("127.0.0.1", 1, "127.0.0.1", 2).await;
                drop((opened, channel));
            });
            return Ok(());
        }
        let child = self.upload_pack(path);
        tokio::spawn(serve(channel, child));
        Ok(())
    }

    fn upload_pack(&self, path: &str) -> Child {
        let folder: &Path = &self.settings.folder;
        let protocol = self.protocol.as_ref().map(|protocol| ("GIT_PROTOCOL", protocol));
        Command::new("git")
            .arg("upload-pack")
            .arg(folder.join(path.trim_start_matches('/')))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", folder)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs(protocol)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }
}

impl Handler for GitSession {
    type Error = russh::Error;

    fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> impl Future<Output = Result<Auth, russh::Error>> + Send {
        let is_known = user == USER && key.public_key.key_data() == self.settings.authorized.key_data();
        future::ready(Ok(if is_known { Auth::Accept } else { Auth::reject() }))
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    fn env_request(
        &mut self,
        _channel: ChannelId,
        name: &str,
        value: &str,
        _session: &mut Session,
    ) -> impl Future<Output = Result<(), russh::Error>> + Send {
        if self.settings.accepts_environment && name == "GIT_PROTOCOL" {
            self.protocol = Some(value.to_owned());
        }
        future::ready(Ok(()))
    }

    fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> impl Future<Output = Result<(), russh::Error>> + Send {
        future::ready(self.execute(channel, command, session))
    }
}

/// Connects a channel with a program until the client leaves.
async fn serve(channel: Channel<Msg>, mut child: Child) {
    let (mut input, output) = channel.split();
    let mut stdin = child.stdin.take().unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = async move {
        while let Some(message) = input.wait().await {
            let is_written = match message {
                ChannelMsg::Data { data } => stdin.write_all(&data).await.is_ok(),
                ChannelMsg::Eof | ChannelMsg::Close => false,
                _ => true,
            };
            if !is_written {
                break;
            }
        }
    };
    let write = async move {
        // The client may be gone.
        let _ = output.data(stdout).await;
        let _ = output.extended_data(1, stderr).await;
        let status = child.wait().await.unwrap().code().unwrap_or(1);
        let _ = output.exit_status(u32::try_from(status).unwrap()).await;
        let _ = output.close().await;
    };
    tokio::join!(read, write);
}
