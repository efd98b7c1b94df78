//! Why objects cannot be listed or watched, and what to do then.

use chandler_core::failure::cause;

use super::kind::ObjectKind;
use crate::{reach::failure_of, response::UnusableResponse};

/// Why objects cannot be listed or watched. The messages contain nothing of the objects.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("the workload cluster does not serve this kind")]
    NotServed,
    #[error("{}", failure_of(.0))]
    Request(#[from] kube::Error),
    #[error("the workload cluster answered something else than the objects that were requested")]
    Unreadable,
    #[error("the workload cluster answered more than {0} bytes")]
    TooLarge(usize),
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
    /// Returns how the watch of a kind goes on.
    pub fn next(&self, kind: &ObjectKind) -> Next {
        match self {
            Self::NotServed => Next::NotServed,
            Self::Request(kube::Error::Api(status)) => match status.code {
                // Every API server serves the core kinds: a 404 for them is the answer of something else.
                404 if kind.is_optional() => Next::NotServed,
                // Renewed credentials continue the watch.
                401 | 429 | 500 | 502 | 503 => Next::Continue,
                _ => Next::List,
            },
            Self::Request(error) if cause::<UnusableResponse>(error).is_some() => Next::List,
            Self::Request(_) => Next::Continue,
            Self::Unreadable | Self::TooLarge(_) => Next::List,
        }
    }

    /// Returns whether the changes since the last event are not available any more, which is no fault.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Request(kube::Error::Api(status)) if status.code == 410)
    }

    /// Returns whether a user has to grant rights.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Request(kube::Error::Api(status)) if status.code == 403)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_watch_is_continued_unless_the_server_refuses_it() {
        let api =
            |code| WatchError::Request(kube::Error::Api(Status::failure("", "").with_code(code).boxed()));
        let broken = WatchError::Request(kube::Error::ReadEvents(std::io::Error::other("reset")));
        let too_large = WatchError::Request(kube::Error::Service(UnusableResponse::TooLarge(1).into()));
        let rows = [
            (broken, Next::Continue, Next::Continue),
            (too_large, Next::List, Next::List),
            (WatchError::TooLarge(1), Next::List, Next::List),
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
        let (core, custom) = (ObjectKind::new("v1", "Service"), ObjectKind::new("example.dev/v1", "Widget"));
        for (error, of_core, of_custom) in rows {
            assert_eq!(error.next(&core), of_core, "{error:?}");
            assert_eq!(error.next(&custom), of_custom, "{error:?}");
        }
    }
}
