use chandler_core::failure::Category;

/// Why a pass over an object broke off. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot write {kind} {name}: {source}")]
    Write { kind: &'static str, name: String, source: kube::Error },
    #[error("cannot read {what}: {source}")]
    Read { what: String, source: kube::Error },
    #[error("{kind} {name} has no {field}")]
    Incomplete { kind: &'static str, name: String, field: &'static str },
    #[error("the package tool cannot render templates: {0}")]
    Render(chandler_core::failure::Failure),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error(
        "{kind} is not served by the management cluster; install Chandler's CRDs and Cluster API first: {source}"
    )]
    NotServed { kind: String, source: kube::Error },
    #[error("the Cluster API add-on provider for Helm is still installed: {found}; {next}")]
    Predecessor { found: String, next: &'static str },
    #[error("a watch of the management cluster ended before its first list was complete")]
    WatchEnded,
    #[error("leadership was lost: {0}")]
    LostLeadership(String),
    #[error(transparent)]
    Hooks(#[from] chandler_hooks::Error),
    #[error("cannot open the package store: {0}")]
    Store(#[from] chandler_source::SourceError),
}

impl Error {
    /// The only label that metrics carry.
    pub fn category(&self) -> Category {
        match self {
            Self::Render(failure) => failure.category,
            Self::Incomplete { .. } => Category::InvalidSpec,
            _ => Category::Internal,
        }
    }
}
