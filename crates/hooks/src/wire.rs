//! The contract on the wire: the fields we read of a question, and an answer as Cluster API reads it.

use chandler_core::identity::ClusterKey;
use serde::{Deserialize, Serialize};

use crate::{Answer, Answers, FailurePolicy, Hook, hook::API_VERSION};

/// Where Cluster API asks which hooks there are.
pub const DISCOVERY: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery";

/// How long Cluster API waits for an answer, which comes from caches.
const TIMEOUT_SECONDS: u32 = 5;
/// When it asks again after a refusal. What was refused may be mended at any time, and asking is cheap.
const ASK_AGAIN_SECONDS: u32 = 15;
/// Cluster API does not ask earlier than it was told to, whatever happens.
const LONGEST_WAIT_SECONDS: u32 = 600;
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpgradeRequest {
    cluster: Cluster,
    from_kubernetes_version: String,
    to_kubernetes_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpgradedRequest {
    cluster: Cluster,
    kubernetes_version: String,
}

#[derive(Deserialize)]
struct DeleteRequest {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    namespace: String,
    name: String,
}

impl Cluster {
    fn key(self) -> ClusterKey {
        ClusterKey::new(self.metadata.namespace, self.metadata.name)
    }
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

/// Asks for the answer to a request.
pub fn ask(
    hook: Hook,
    request: &[u8],
    answers: &dyn Answers,
) -> Result<(ClusterKey, Answer), serde_json::Error> {
    Ok(match hook {
        Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade => {
            let UpgradeRequest { cluster, from_kubernetes_version: from, to_kubernetes_version: to } =
                serde_json::from_slice(request)?;
            let cluster = cluster.key();
            let answer = match hook {
                Hook::BeforeClusterUpgrade => answers.before_cluster_upgrade(&cluster, &from, &to),
                _ => answers.before_control_plane_upgrade(&cluster, &from, &to),
            };
            (cluster, answer)
        }
        Hook::AfterControlPlaneUpgrade | Hook::AfterClusterUpgrade => {
            let UpgradedRequest { cluster, kubernetes_version: version } = serde_json::from_slice(request)?;
            let cluster = cluster.key();
            let answer = match hook {
                Hook::AfterControlPlaneUpgrade => answers.after_control_plane_upgrade(&cluster, &version),
                _ => answers.after_cluster_upgrade(&cluster, &version),
            };
            (cluster, answer)
        }
        Hook::BeforeClusterDelete => {
            let DeleteRequest { cluster } = serde_json::from_slice(request)?;
            let cluster = cluster.key();
            let answer = answers.before_cluster_delete(&cluster);
            (cluster, answer)
        }
    })
}

/// The answer as it goes over the wire.
pub fn response(hook: Hook, answer: &Answer) -> Response {
    let (retry_after_seconds, message) = match answer {
        Answer::Go => (0, ""),
        Answer::Wait { seconds, message } => ((*seconds).clamp(1, LONGEST_WAIT_SECONDS), message.as_str()),
        Answer::Refuse { message } => (ASK_AGAIN_SECONDS, message.as_str()),
    };
    Response {
        api_version: API_VERSION,
        kind: format!("{}Response", hook.name()),
        status: Status::Success,
        message: shortened(message),
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
