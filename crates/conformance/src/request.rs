//! Requests to the tool.

use std::time::Duration;

use chandler_core::digest::Digest;
use chandler_tool::generated::tool::{
    ApplyOptions, ApplyRequest, RemoveOptions, RemoveRequest, RollbackOptions, RollbackRequest, Target,
    Values, values,
};

/// Timeout of an operation that is expected to succeed.
pub const TIMEOUT: Duration = Duration::from_secs(90);

/// Annotation of a CRD with the effect of `replace_unsafe_crds`, if it is "true".
pub const REPLACE_UNSAFE: &str = "chandler.dev/replace-unsafe-crds";

/// Changes a request.
pub trait RequestExt: Sized {
    type Options;

    fn with(self, change: impl FnOnce(&mut Self::Options)) -> Self;
    /// Sends the request to another cluster, or as another user.
    fn on(self, target: Target) -> Self;
}

impl RequestExt for ApplyRequest {
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

impl RequestExt for RollbackRequest {
    type Options = RollbackOptions;

    fn with(mut self, change: impl FnOnce(&mut RollbackOptions)) -> Self {
        change(self.options.get_or_insert_default());
        self
    }

    fn on(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }
}

impl RequestExt for RemoveRequest {
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

/// Requests recovery from an interrupted operation.
pub fn recovering(mut request: ApplyRequest) -> ApplyRequest {
    request.recover = true;
    request
}

/// Returns a request for other inputs that render the same objects.
pub fn with_other_digest(mut request: ApplyRequest) -> ApplyRequest {
    let other = Digest::of(format!("other than {}", request.input_digest));
    other.hex()[..40].clone_into(&mut request.input_digest);
    request
}

/// Values that a case gives to a package.
pub trait IntoValues {
    fn into_values(self) -> Values;
}

/// Text in the tool's own format: YAML for Helm.
impl IntoValues for &str {
    fn into_values(self) -> Values {
        text(self)
    }
}

impl IntoValues for &String {
    fn into_values(self) -> Values {
        text(self)
    }
}

impl IntoValues for serde_json::Value {
    fn into_values(self) -> Values {
        json(&self.to_string())
    }
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
