//! Why objects cannot be listed or watched, and what to do then.

use std::{error::Error, io};

use chandler_core::failure::{Category, Failure, cause};

use crate::{
    budget::{Busy, TooMuchKept},
    reach::failure_of,
    response::UnusableResponse,
};

/// Why objects cannot be listed or watched. The messages contain nothing of the objects.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("the workload cluster does not serve this kind")]
    NotServed,
    #[error("{}", failure_of(.0))]
    Request(#[from] kube::Error),
    #[error("the workload cluster answered something else than the objects that were requested")]
    Unreadable,
    #[error("the API server of the workload cluster is not used: {}", UnusableResponse::TooLarge(*.0))]
    TooLarge(usize),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    TooMuchKept(#[from] TooMuchKept),
    #[error("the workload cluster has more than {0} records of releases; Chandler does not use it")]
    TooManyRecords(usize),
}

/// How a watch goes on after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is continued after the last event.
    Continue,
    /// The objects are listed again: there is no other way to know them.
    List,
    /// The kind is tried again later.
    NotServed,
}

impl WatchError {
    /// Returns how the watch of a kind goes on. A kind is optional if a cluster may not serve it.
    pub fn next(&self, is_optional: bool) -> Next {
        match self {
            Self::NotServed => Next::NotServed,
            Self::Request(kube::Error::Api(status)) => match status.code {
                // Every API server serves the core kinds: a 404 for them is the answer of something else.
                404 if is_optional => Next::NotServed,
                // Renewed credentials continue the watch.
                401 | 429 | 500 | 502 | 503 => Next::Continue,
                _ => Next::List,
            },
            Self::Request(error) if cause::<UnusableResponse>(error).is_some() => Next::List,
            // It would be built of the same version again.
            Self::Request(kube::Error::BuildRequest(_) | kube::Error::HttpError(_)) => Next::List,
            // Other clusters have taken the memory: that says nothing about this one.
            Self::Request(_) | Self::Busy(_) => Next::Continue,
            Self::Unreadable | Self::TooLarge(_) | Self::TooMuchKept(_) | Self::TooManyRecords(_) => {
                Next::List
            }
        }
    }

    /// Returns the failure that the error is for the whole cluster.
    pub fn failure(&self) -> Failure {
        let category = match self {
            Self::Request(error) => return failure_of(error),
            Self::TooLarge(_) | Self::TooMuchKept(_) | Self::TooManyRecords(_) => Category::Rejected,
            // Passes by itself, or comes from a server in between that stands for the API server for a moment.
            Self::NotServed | Self::Unreadable | Self::Busy(_) => Category::Internal,
        };
        Failure::new(category, self.to_string())
    }

    /// Returns whether the changes since the last event are not available any more, which is no fault.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Request(kube::Error::Api(status)) if status.code == 410)
    }

    /// Returns whether the connection of a watch has ended in between, which is no fault: the watch is continued.
    pub fn is_cut_off(&self) -> bool {
        let Self::Request(error) = self else { return false };
        let mut current: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = current {
            let Some(error) = error.downcast_ref::<io::Error>() else {
                current = error.source();
                continue;
            };
            if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::TimedOut) {
                return true;
            }
            current = error.get_ref().map(|inner| inner as _);
        }
        false
    }

    /// Returns whether a user has to grant rights.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Request(kube::Error::Api(status)) if status.code == 403)
    }
}

#[cfg(test)]
mod tests {
    use chandler_core::identity::ClusterKey;
    use kube::core::Status;

    use super::*;
    use crate::{budget::ResponseBudgets, response::MAX_RESPONSE};

    #[test]
    fn a_watch_is_continued_unless_the_server_refuses_it() {
        let api =
            |code| WatchError::Request(kube::Error::Api(Status::failure("", "").with_code(code).boxed()));
        let broken = WatchError::Request(kube::Error::ReadEvents(io::Error::other("reset")));
        let too_large = WatchError::Request(kube::Error::Service(UnusableResponse::TooLarge(1).into()));
        let rows = [
            (broken, Next::Continue, Next::Continue),
            (too_large, Next::List, Next::List),
            (WatchError::TooLarge(1), Next::List, Next::List),
            (TooMuchKept::Cluster.into(), Next::List, Next::List),
            (api(503), Next::Continue, Next::Continue),
            (api(429), Next::Continue, Next::Continue),
            (api(401), Next::Continue, Next::Continue),
            (api(410), Next::List, Next::List),
            // A resource version that is too large, after a backup was restored.
            (api(504), Next::List, Next::List),
            (api(403), Next::List, Next::List),
            (api(404), Next::List, Next::NotServed),
            (WatchError::NotServed, Next::NotServed, Next::NotServed),
            (WatchError::Unreadable, Next::List, Next::List),
        ];
        for (error, of_core, of_custom) in rows {
            assert_eq!(error.next(false), of_core, "{error:?}");
            assert_eq!(error.next(true), of_custom, "{error:?}");
        }
    }

    #[test]
    fn a_watch_that_is_cut_off_is_continued() {
        let service = |error: io::Error| WatchError::Request(kube::Error::Service(error.into()));
        let eof = || io::Error::new(io::ErrorKind::UnexpectedEof, "no event for long");
        assert!(service(eof()).is_cut_off() && service(io::Error::other(eof())).is_cut_off());
        assert!(!service(io::Error::other("reset")).is_cut_off() && !WatchError::Unreadable.is_cut_off());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_waits_for_others_is_not_blamed() {
        let budget = ResponseBudgets::default().cluster(&ClusterKey::new("fleet", "blue"));
        let _held = budget.whole(MAX_RESPONSE).await.unwrap();
        let busy = WatchError::from(budget.whole(MAX_RESPONSE).await.unwrap_err());
        assert_eq!((busy.next(false), busy.failure().category), (Next::Continue, Category::Internal));
        assert_eq!(WatchError::TooLarge(16 << 20).failure().category, Category::Rejected);
    }
}
