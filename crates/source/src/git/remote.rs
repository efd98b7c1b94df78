//! A repository and the transport that its URL names.

use std::sync::Arc;

use gix_transport::client::blocking_io::Transport;

use super::{connection::Connection, exchange::HttpsRemote, ssh::SshRemote};
use crate::SourceError;

/// A repository over https or ssh.
pub(super) enum Remote {
    Https(Arc<HttpsRemote>),
    Ssh(SshRemote),
}

impl Remote {
    pub fn connection(&self) -> &Connection {
        match self {
            Self::Https(remote) => &remote.connection,
            Self::Ssh(remote) => &remote.connection,
        }
    }

    /// Opens the transport. Must not be called in an async task.
    pub fn open(&self) -> Result<Box<dyn Transport>, SourceError> {
        let transport: Box<dyn Transport> = match self {
            Self::Https(remote) => Box::new(remote.open()?),
            Self::Ssh(remote) => Box::new(remote.open()?),
        };
        Ok(transport)
    }
}
