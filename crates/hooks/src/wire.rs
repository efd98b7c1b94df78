//! The wire format of responses to Cluster API.

use chandler_core::proceed::PROCEED_ANNOTATION;
use serde::Serialize;

use crate::{FailurePolicy, Hook, HookResponse, hook::API_VERSION};

/// Path of the discovery hook, which lists the handlers.
pub const DISCOVERY: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery";

/// How long Cluster API waits for a response.
const TIMEOUT_SECONDS: u32 = 5;
/// When Cluster API calls again after a blocking response. Short, because the cause may be fixed at any time and a call is
/// cheap.
const BLOCKED_RETRY_SECONDS: u32 = 15;
/// Cluster API never calls again before this time has elapsed, not even if the proceed annotation is set.
const MAX_RETRY_SECONDS: u32 = 60;
/// Cluster API writes the messages of all extensions into one condition, which is limited to 10240 characters. If they do not
/// fit, it cannot update the status of the Cluster.
const MAX_MESSAGE_CHARS: usize = 4096;

/// The response to discovery.
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

/// The response to a hook that can block.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryResponse {
    api_version: &'static str,
    kind: String,
    status: Status,
    message: String,
    /// Any value except zero blocks.
    retry_after_seconds: u32,
}

/// `Failure` is never sent: Cluster API does not show its message on the Cluster, and backs off exponentially.
#[derive(Debug, Serialize)]
enum Status {
    Success,
}

/// Returns the handlers. Without `control_plane_steps`, the hook `BeforeControlPlaneUpgrade` is omitted: a Cluster API that
/// does not support it would reject all handlers.
pub fn discovery(control_plane_steps: bool, failure_policy: FailurePolicy) -> DiscoveryResponse {
    let hooks = Hook::ALL.into_iter();
    let served = hooks.filter(|hook| control_plane_steps || *hook != Hook::BeforeControlPlaneUpgrade);
    let handler = |hook: Hook| Handler {
        name: hook.handler(),
        request_hook: RequestHook { api_version: API_VERSION, hook: hook.name() },
        timeout_seconds: TIMEOUT_SECONDS,
        failure_policy: hook.failure_policy(failure_policy),
    };
    DiscoveryResponse {
        api_version: API_VERSION,
        kind: "DiscoveryResponse",
        status: Status::Success,
        handlers: served.map(handler).collect(),
    }
}

/// Returns the response in wire format. If `overridden`, a blocking response does not block.
pub fn response(hook: Hook, response: &HookResponse, overridden: bool) -> RetryResponse {
    let hook_name = hook.name();
    let (retry_after_seconds, message) = match response {
        HookResponse::Proceed => (0, String::new()),
        HookResponse::RetryAfter { message, .. } | HookResponse::Block { message } if overridden => {
            (0, format!("annotation {PROCEED_ANNOTATION} overrides {hook_name}: {}", truncated(message)))
        }
        HookResponse::RetryAfter { seconds, message } => {
            ((*seconds).clamp(1, MAX_RETRY_SECONDS), truncated(message))
        }
        HookResponse::Block { message } => {
            let hint =
                format!("to proceed anyway, set annotation {PROCEED_ANNOTATION}: {hook_name} on the Cluster");
            (BLOCKED_RETRY_SECONDS, format!("{} ({hint})", truncated(message)))
        }
    };
    RetryResponse {
        api_version: API_VERSION,
        kind: format!("{hook_name}Response"),
        status: Status::Success,
        message,
        retry_after_seconds,
    }
}

/// Returns the beginning of a message.
pub fn truncated(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
