//! Which server the objects come from.

use std::sync::Arc;

use chandler_core::target::Target;

/// The server whose objects are watched, and which of them. The versions of another server say nothing about this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    server: String,
    /// Another cluster at the same address has another authority.
    ca_pem: Option<Vec<u8>>,
    server_name: Option<String>,
    pub selector: String,
}

impl Source {
    pub fn new(target: &Target, selector: &str) -> Self {
        Self {
            server: target.server.clone(),
            ca_pem: target.tls.ca_pem.clone(),
            server_name: target.tls.server_name.clone(),
            selector: selector.to_owned(),
        }
    }
}

/// Where the watch of a kind is continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub source: Arc<Source>,
    pub version: String,
}
