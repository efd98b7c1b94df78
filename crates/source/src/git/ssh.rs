//! Git over ssh: one connection per conversation, without an agent, configuration or programs. The server must have a key of
//! `known_hosts`, and its address must be allowed.

mod address;
mod channel;
mod identity;
mod known_hosts;
mod stream;

use std::{borrow::Cow, future, sync::Arc, time::Duration};

use gix_transport::{
    Protocol,
    client::git::{ConnectMode, blocking_io::Connection as GitConnection},
};
use russh::{
    Channel, Preferred, SshId,
    client::{self, ChannelOpenHandle, Handle, Msg, Session},
    keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate},
};
use tokio::net::TcpStream;

pub(super) use self::address::SshAddress;
use self::{
    channel::{SshReader, SshWriter},
    known_hosts::HostKeys,
    stream::ExpiringStream,
};
use super::connection::Connection;
use crate::{Access, SourceError, access::SshKey, http::HttpClient};

/// How much later than their callers the tasks of the ssh library give up, so that callers report the time limit.
const GRACE: Duration = Duration::from_secs(1);

/// A repository over ssh.
pub(super) struct SshRemote {
    pub connection: Arc<Connection>,
    http: Arc<HttpClient>,
    address: SshAddress,
    key: SshKey,
}

impl SshRemote {
    pub fn new(connection: Connection, http: Arc<HttpClient>, access: &Access) -> Result<Self, SourceError> {
        let url = &connection.url;
        let address = SshAddress::parse(url).map_err(|reason| SourceError::InvalidGitUrl {
            url: url.to_string(),
            reason: reason.to_owned(),
        })?;
        access.check_host(url)?;
        let key = access.ssh_key().cloned().ok_or_else(|| {
            invalid(url.as_str(), "spec.credentials must name a Secret with identity and known_hosts")
        })?;
        Ok(Self { connection: Arc::new(connection), http, address, key })
    }

    /// Connects, and starts `git-upload-pack` on the server. Must not be called in an async task.
    pub fn open(&self) -> Result<GitConnection<SshReader, SshWriter>, SourceError> {
        let failed = |reason| invalid(self.connection.url.as_str(), reason);
        let identity = identity::read(&self.key).map_err(failed)?;
        let host_keys = HostKeys::parse(&self.key.known_hosts, self.address.known_host()).map_err(failed)?;
        let (session, channel) = self.connection.block_on(self.start(identity, host_keys))?;
        let (output, input) = channel.split();
        let (connection, timeout) = (&self.connection, self.http.limits.read_timeout);
        let transport = GitConnection::new(
            SshReader::new(connection.clone(), timeout, output, session),
            SshWriter::new(connection.clone(), timeout, input),
            Protocol::V2,
            self.address.path.as_str(),
            None::<(String, Option<u16>)>,
            ConnectMode::Process,
            false,
        );
        Ok(transport.custom_url(Some(connection.url.as_str().into())))
    }

    async fn start(
        &self,
        identity: PrivateKey,
        host_keys: HostKeys,
    ) -> Result<(Handle<HostKeyCheck>, Channel<Msg>), SourceError> {
        let limits = &self.http.limits;
        let connection = &self.connection;
        let stream = connection.within(limits.connect_timeout, self.connect()).await?;
        // A slow connection leaves the handshake its time.
        let handshake = self.handshake(stream, host_keys);
        let mut session = connection.within(limits.connect_timeout, handshake).await?;
        connection.within(limits.read_timeout, self.authenticate(&mut session, identity)).await?;
        let channel = connection.within(limits.read_timeout, self.execute(&session)).await?;
        Ok((session, channel))
    }

    async fn connect(&self) -> Result<TcpStream, SourceError> {
        let SshAddress { host, port, .. } = &self.address;
        self.http.connect_tcp(&self.connection.url, host, *port).await
    }

    /// Agrees on encryption, and checks the key of the server.
    async fn handshake(
        &self,
        stream: TcpStream,
        host_keys: HostKeys,
    ) -> Result<Handle<HostKeyCheck>, SourceError> {
        let stream = ExpiringStream::new(stream, self.connection.deadline.at() + GRACE);
        let config = client::Config {
            client_id: SshId::Standard(Cow::Borrowed("SSH-2.0-chandler")),
            preferred: Preferred { key: Cow::Owned(host_keys.algorithms()), ..Preferred::DEFAULT },
            inactivity_timeout: Some(self.http.limits.read_timeout + GRACE),
            ..client::Config::default()
        };
        let check = HostKeyCheck { connection: self.connection.clone(), host_keys };
        client::connect_stream(Arc::new(config), stream, check)
            .await
            .map_err(|error| self.connection.first_failure(self.broken("the ssh handshake failed", &error)))
    }

    async fn authenticate(
        &self,
        session: &mut Handle<HostKeyCheck>,
        identity: PrivateKey,
    ) -> Result<(), SourceError> {
        let (user, fingerprint) = (&self.address.user, identity.fingerprint(HashAlg::Sha256));
        let key = PrivateKeyWithHashAlg::new(Arc::new(identity), None);
        let answer = session.authenticate_publickey(user, key).await;
        if answer.map_err(|error| self.broken("the ssh login failed", &error))?.success() {
            return Ok(());
        }
        Err(self.connection.broken(format!(
            "the server does not accept the key {fingerprint} for user {user}; add the public key of identity to the \
             repository or the account"
        )))
    }

    async fn execute(&self, session: &Handle<HostKeyCheck>) -> Result<Channel<Msg>, SourceError> {
        let failed = |error: russh::Error| self.broken("cannot start git-upload-pack", &error);
        let channel = session.channel_open_session().await.map_err(failed)?;
        // A server that ignores it uses an older version of the protocol.
        channel.set_env(false, "GIT_PROTOCOL", "version=2").await.map_err(failed)?;
        channel.exec(true, self.address.command()).await.map_err(failed)?;
        Ok(channel)
    }

    fn broken(&self, what: &str, error: &russh::Error) -> SourceError {
        self.connection.broken(format!("{what}: {error}"))
    }
}

fn invalid(url: &str, reason: &'static str) -> SourceError {
    SourceError::InvalidCredentials { url: url.to_owned(), reason }
}

/// Accepts only servers whose key is known.
pub(super) struct HostKeyCheck {
    connection: Arc<Connection>,
    host_keys: HostKeys,
}

impl client::Handler for HostKeyCheck {
    type Error = russh::Error;

    fn check_server_key(
        &mut self,
        offered: &PublicKeyOrCertificate,
    ) -> impl Future<Output = Result<bool, russh::Error>> + Send {
        let checked = match offered {
            PublicKeyOrCertificate::PublicKey { key, .. } => self.host_keys.check(key),
            PublicKeyOrCertificate::Certificate(_) => {
                Err("it offers a certificate, which is not supported".to_owned())
            }
        };
        let is_trusted = checked.is_ok();
        if let Err(reason) = checked {
            let url = self.connection.url.to_string();
            self.connection.refuse(SourceError::UntrustedHostKey { url, reason });
        }
        future::ready(Ok(is_trusted))
    }

    // The library accepts channels that a server opens, and keeps each in memory. Nothing here needs them.

    fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> impl Future<Output = Result<(), russh::Error>> + Send {
        self.refuse_channel()
    }

    fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> impl Future<Output = Result<(), russh::Error>> + Send {
        self.refuse_channel()
    }

    fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> impl Future<Output = Result<(), russh::Error>> + Send {
        self.refuse_channel()
    }

    fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> impl Future<Output = Result<(), russh::Error>> + Send {
        self.refuse_channel()
    }

    fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> impl Future<Output = Result<(), russh::Error>> + Send {
        self.refuse_channel()
    }

    fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> impl Future<Output = Result<(), russh::Error>> + Send {
        self.refuse_channel()
    }

    fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> impl Future<Output = Result<(), russh::Error>> + Send {
        self.refuse_channel()
    }
}

impl HostKeyCheck {
    /// Ends the connection to a server that opens a channel.
    fn refuse_channel(&self) -> future::Ready<Result<(), russh::Error>> {
        let reason = "the ssh server opened a channel, which no Git server does".to_owned();
        self.connection.refuse(self.connection.broken(reason));
        future::ready(Err(russh::Error::Inconsistent))
    }
}
