use std::{error::Error, io, net::SocketAddr};

use chandler_core::failure::{Category, Failure};

/// An error of a request to the management cluster.
#[derive(Debug, thiserror::Error)]
pub enum ManagementError {
    #[error("cannot write {kind} {name}: {source}")]
    Write { kind: &'static str, name: String, source: kube::Error },
    #[error("cannot read {what}: {source}")]
    Read { what: String, source: kube::Error },
}

/// Returns `None` for a 404: the object does not exist, or the API server does not serve its kind. `Api::get_opt` returns an error
/// for the latter.
pub fn found<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}

/// Returns what a write has stored, or `None` if the object has been deleted.
pub fn write_result<T>(
    kind: &'static str,
    name: String,
    result: Result<T, kube::Error>,
) -> Result<Option<T>, ManagementError> {
    found(result).map_err(|source| ManagementError::Write { kind, name, source })
}

/// An error of a reconcile, which is retried.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Management(#[from] ManagementError),
    #[error("{kind} {name} has no {field}")]
    Incomplete { kind: &'static str, name: String, field: &'static str },
    #[error("the package tool cannot render templates: {0}")]
    Render(Failure),
    #[error("the ClusterTunnel cannot be used: {0}")]
    InvalidTunnel(String),
    #[error("a ClusterTunnel cannot be created: {0}")]
    NewTunnel(String),
}

/// An error that ends the manager or keeps it from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    #[error(transparent)]
    Management(#[from] ManagementError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "{kind} is not served by the management cluster; install Chandler's CRDs and Cluster API first: {source}"
    )]
    NotServed { kind: String, source: kube::Error },
    #[error(
        "the manager may not list AddonTenancies, which say what tenants may install; bind ClusterRole \
         chandler-system-manager-cluster to it, or start it with --ignore-tenancies if there are none for it: {source}"
    )]
    TenanciesForbidden { source: kube::Error },
    #[error("CAAPH, the Cluster API add-on provider for Helm, is still installed: {found}; {next}")]
    CaaphInstalled { found: String, next: &'static str },
    #[error("CAAPF, the Cluster API add-on provider for Fleet, is still running: {found}; {next}")]
    CaapfInstalled { found: String, next: &'static str },
    #[error("a watch of the management cluster ended before its first list was complete")]
    WatchEnded,
    #[error("leadership was lost: {0}")]
    LostLeadership(String),
    #[error("the thread `{name}` cannot be started: {source}")]
    Thread { name: &'static str, source: io::Error },
    #[error(transparent)]
    Hooks(#[from] chandler_hooks::Error),
    #[error("cannot open the package store: {0}")]
    Store(#[from] chandler_source::SourceError),
}

impl ManagementError {
    /// The categories that `category` can return.
    pub const CATEGORIES: [Category; 7] = [
        Category::Unauthorized,
        Category::Forbidden,
        Category::Conflict,
        Category::Rejected,
        Category::Timeout,
        Category::Unreachable,
        Category::Internal,
    ];

    /// Returns the category of the failure.
    pub fn category(&self) -> Category {
        let (Self::Write { source, .. } | Self::Read { source, .. }) = self;
        management_category(source)
    }
}

/// Returns the category of a failed request to the management cluster.
pub fn management_category(error: &kube::Error) -> Category {
    match error {
        kube::Error::Api(status) => category_of(status.code),
        kube::Error::Auth(_) => Category::Unauthorized,
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
            if is_timeout(error) { Category::Timeout } else { Category::Unreachable }
        }
        _ => Category::Internal,
    }
}

/// Returns whether a request to the management cluster may succeed later without a change.
pub fn is_temporary(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || matches!(status.code, 408 | 429),
        _ => matches!(management_category(error), Category::Unreachable | Category::Timeout),
    }
}

/// Returns whether an error or one of its sources is an expired deadline.
fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let is_expired = |error: &(dyn Error + 'static)| {
        error.is::<tokio::time::error::Elapsed>()
            || error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    };
    std::iter::successors(Some(error), |error| (**error).source()).any(is_expired)
}

/// Returns the category for an HTTP status code of the API server.
fn category_of(code: u16) -> Category {
    match code {
        401 => Category::Unauthorized,
        403 => Category::Forbidden,
        409 => Category::Conflict,
        400 | 422 => Category::Rejected,
        408 | 504 => Category::Timeout,
        429 | 502 | 503 => Category::Unreachable,
        _ => Category::Internal,
    }
}

impl ReconcileError {
    /// Returns the category, which is the label of the error in metrics.
    pub fn category(&self) -> Category {
        match self {
            Self::Management(error) => error.category(),
            Self::Render(failure) => failure.category,
            Self::Incomplete { .. } | Self::InvalidTunnel(_) => Category::InvalidSpec,
            Self::NewTunnel(_) => Category::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn errors_of_the_management_cluster_have_a_category() {
        let rows = [
            (401, Category::Unauthorized, false),
            (403, Category::Forbidden, false),
            (404, Category::Internal, false),
            (409, Category::Conflict, false),
            (422, Category::Rejected, false),
            (429, Category::Unreachable, true),
            (500, Category::Internal, true),
            (503, Category::Unreachable, true),
            (504, Category::Timeout, true),
        ];
        for (code, expected, temporary) in rows {
            let source = kube::Error::Api(Status::failure("why", "Why").with_code(code).boxed());
            assert_eq!(is_temporary(&source), temporary, "{code}");
            let error = ManagementError::Write { kind: "Cluster", name: "blue".to_owned(), source };
            assert_eq!(ReconcileError::from(error).category(), expected, "{code}");
            assert!(ManagementError::CATEGORIES.contains(&expected), "{code}");
        }
        let source = kube::Error::Service("connection refused".into());
        assert!(is_temporary(&source));
        let unreachable = ManagementError::Read { what: "Leases".to_owned(), source };
        assert_eq!(unreachable.category(), Category::Unreachable);
        let source = kube::Error::Service(io::Error::from(io::ErrorKind::TimedOut).into());
        let expired = ManagementError::Read { what: "Leases".to_owned(), source };
        assert_eq!(expired.category(), Category::Timeout);
    }
}
