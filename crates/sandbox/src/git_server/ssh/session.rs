//! One connection: the login of the user, and `git upload-pack`.

use std::collections::HashMap;
use std::future;
use std::io;
use std::process::Stdio;
use std::sync::Arc;

use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelMsg};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;

use super::{SshSettings, USER};
use crate::git_server::program;

/// One connection.
pub(super) struct GitSession {
    settings: Arc<SshSettings>,
    channels: HashMap<ChannelId, Channel<Msg>>,
    protocol: Option<String>,
}

impl GitSession {
    pub(super) fn new(settings: Arc<SshSettings>) -> Self {
        Self { settings, channels: HashMap::new(), protocol: None }
    }

    fn execute(&mut self, id: ChannelId, command: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        let command = str::from_utf8(command).unwrap_or_default();
        let path = command.strip_prefix("git-upload-pack '").and_then(|rest| rest.strip_suffix('\''));
        let (Some(path), Some(channel)) = (path, self.channels.remove(&id)) else {
            return session.channel_failure(id);
        };
        if self.settings.opens_channel {
            session.channel_success(id)?;
            let handle = session.handle();
            tokio::spawn(async move {
                let opened = handle.channel_open_forwarded_tcpip("127.0.0.1", 1, "127.0.0.1", 2).await;
                drop((opened, channel));
            });
            return Ok(());
        }
        match self.upload_pack(path) {
            Ok(child) => {
                session.channel_success(id)?;
                tokio::spawn(serve(channel, child));
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "cannot run git upload-pack");
                session.channel_failure(id)
            }
        }
    }

    fn upload_pack(&self, path: &str) -> io::Result<Child> {
        let protocol = self.protocol.as_ref().map(|protocol| ("GIT_PROTOCOL", protocol));
        program::command(&self.settings.folder, &["upload-pack", path.trim_start_matches('/')])
            .envs(protocol)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }
}

impl Handler for GitSession {
    type Error = russh::Error;

    fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> impl Future<Output = Result<Auth, russh::Error>> + Send {
        let is_known =
            user == USER && key.public_key.key_data() == self.settings.authorized.public_key.key_data();
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
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else { return };
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
        let code = child.wait().await.ok().and_then(|status| status.code());
        let _ = output.exit_status(code.and_then(|code| u32::try_from(code).ok()).unwrap_or(1)).await;
        let _ = output.close().await;
    };
    tokio::join!(read, write);
}
