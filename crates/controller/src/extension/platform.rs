//! The platform: the namespace whose Extensions are everyone's, and the version that some of them belong to.

use std::sync::{Arc, PoisonError, RwLock};

use chandler_core::resolution::parse_version;
use semver::Version;

/// The platform. Clones share it.
#[derive(Clone, Debug)]
pub struct Platform {
    pub namespace: String,
    version: Arc<RwLock<Option<Version>>>,
}

impl Platform {
    pub fn new(namespace: String, version: Option<&str>) -> Self {
        Self { namespace, version: Arc::new(RwLock::new(version.and_then(parse_version))) }
    }

    /// None: it is not known.
    pub fn version(&self) -> Option<Version> {
        self.version.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
