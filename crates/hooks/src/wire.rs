//! The contract on the wire: what Cluster API is told.

use chandler_core::proceed::PROCEED_ANNOTATION;
use serde::Serialize;

use crate::{Answer, FailurePolicy, Hook, hook::API_VERSION};

/// Where Cluster API asks which hooks there are.
pub const DISCOVERY: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery";

/// How long Cluster API waits for an answer, which comes from caches.
const TIMEOUT_SECONDS: u32 = 5;
/// When it asks again after a refusal. What was refused may be mended at any time, and asking is cheap.
const ASK_AGAIN_SECONDS: u32 = 15;
/// Cluster API does not ask earlier than it was told to, whatever happens: not even if a person says that it may go on.
const LONGEST_WAIT_SECONDS: u32 = 60;
/// Cluster API writes it into a condition that takes 10240 characters, together with what others say. If that does not
/// fit, it can write nothing at all about the Cluster.
const LONGEST_MESSAGE: usize = 4096;

/// What Cluster API is told about our hooks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryResponse {
    api_version: &'static str,
    kind: &'static str,
    status: Status,
    handlers: Vec<Handler>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Handler {
    name: &'static str,
    request_hook: RequestHook,
    timeout_seconds: u32,
    failure_policy: FailurePolicy,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestHook {
    api_version: &'static str,
    hook: &'static str,
}

/// An answer as Cluster API reads it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    api_version: &'static str,
    kind: String,
    status: Status,
    message: String,
    /// Anything but zero holds.
    retry_after_seconds: u32,
}

/// There is a `Failure` too, but Cluster API hides its message from the Cluster and backs off for longer and longer.
#[derive(Debug, Serialize)]
enum Status {
    Success,
}

/// Without `control_plane_steps` for a Cluster API that does not know that hook: it would refuse all of them.
pub fn discovery(control_plane_steps: bool, before_upgrade: FailurePolicy) -> DiscoveryResponse {
    let hooks = Hook::ALL.into_iter();
    let served = hooks.filter(|hook| control_plane_steps || *hook != Hook::BeforeControlPlaneUpgrade);
    let handler = |hook: Hook| Handler {
        name: hook.handler(),
        request_hook: RequestHook { api_version: API_VERSION, hook: hook.name() },
        timeout_seconds: TIMEOUT_SECONDS,
        failure_policy: hook.failure_policy(before_upgrade),
    };
    DiscoveryResponse {
        api_version: API_VERSION,
        kind: "DiscoveryResponse",
        status: Status::Success,
        handlers: served.map(handler).collect(),
    }
}

/// The answer as it goes over the wire. One that holds lets go when it is overruled.
pub fn response(hook: Hook, answer: &Answer, overruled: bool) -> Response {
    let hook_name = hook.name();
    let (retry_after_seconds, message) = match answer {
        Answer::Go => (0, String::new()),
        Answer::Wait { message, .. } | Answer::Refuse { message } if overruled => (
            0,
            format!(
                "Annotation {PROCEED_ANNOTATION} lets {hook_name} go on although: {}",
                shortened(message)
            ),
        ),
        Answer::Wait { seconds, message } => ((*seconds).clamp(1, LONGEST_WAIT_SECONDS), shortened(message)),
        Answer::Refuse { message } => {
            let way_out =
                format!("annotation {PROCEED_ANNOTATION}: {hook_name} on the Cluster lets it go on");
            (ASK_AGAIN_SECONDS, format!("{} ({way_out})", shortened(message)))
        }
    };
    Response {
        api_version: API_VERSION,
        kind: format!("{hook_name}Response"),
        status: Status::Success,
        message,
        retry_after_seconds,
    }
}

fn shortened(message: &str) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
