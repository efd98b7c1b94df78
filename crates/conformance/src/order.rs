//! Requests as cases write them.

use std::time::Duration;

/// Time limit of an operation that is expected to end well.
use chandler_tool::generated::tool::{
    ApplyOptions, ApplyRequest, RemoveOptions, RemoveRequest, Target, Values, values,
};

pub const LIMIT: Duration = Duration::from_secs(90);

/// Changes of a request, one after the other.
pub trait Order: Sized {
    type Options;

    fn with(self, change: impl FnOnce(&mut Self::Options)) -> Self;
    fn on(self, target: Target) -> Self;
}

impl Order for ApplyRequest {
    type Options = ApplyOptions;

    fn with(mut self, change: impl FnOnce(&mut ApplyOptions)) -> Self {
        change(self.options.get_or_insert_default());
        self
    }

    fn on(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }
}

impl Order for RemoveRequest {
    type Options = RemoveOptions;

    fn with(mut self, change: impl FnOnce(&mut RemoveOptions)) -> Self {
        change(self.options.get_or_insert_default());
        self
    }

    fn on(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }
}

/// The same, knowing that whoever left the release pending is dead.
pub fn recovering(mut request: ApplyRequest) -> ApplyRequest {
    request.recover = true;
    request
}

pub fn text(content: &str) -> Values {
    Values { content: Some(values::Content::Text(content.to_owned())) }
}

pub fn json(content: &str) -> Values {
    Values { content: Some(values::Content::Json(content.as_bytes().to_vec())) }
}

pub fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}
