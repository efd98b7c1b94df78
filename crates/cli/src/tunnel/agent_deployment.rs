//! The objects of the agent on a cluster that is imported. Pure.

use anyhow::{Context as _, Result};
use chandler_api::tunnel::AGENT_CONFIG_KEY;
use chandler_core::tunnel::{AGENT_CONFIG_DIR, AGENT_STATE_DIR};
use chandler_tunnel::AgentConfig;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

/// Name of the objects.
pub const NAME: &str = "chandler-agent";
/// Address of the API server for Pods.
const TARGET: &str = "kubernetes.default.svc:443";

/// Returns the image in the static Pod of the agent.
pub fn image(pod: &str) -> Result<String> {
    let pod: Value = serde_saphyr::from_str(pod).context("reading the Pod of the agent")?;
    let image = pod.pointer("/spec/containers/0/image").and_then(Value::as_str);
    Ok(image.context("the Pod of the agent has no image")?.to_owned())
}

/// Returns the configuration of an agent that does not run on a control plane node. Errors contain no token.
pub fn configuration(agent: &SecretString) -> Result<SecretString> {
    let agent =
        AgentConfig::from_yaml(agent.expose_secret()).context("reading the configuration of the agent")?;
    let agent = AgentConfig { target: TARGET.to_owned(), ..agent };
    agent.to_yaml().context("writing the configuration of the agent")
}

/// Returns the namespace of the agent. Its key is stored on the node, which needs the privileged level.
pub fn namespace(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    })
}

pub fn secret(namespace: &str, configuration: &SecretString) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": namespace},
        "stringData": {AGENT_CONFIG_KEY: configuration.expose_secret()},
    })
}

/// Returns the Deployment: two agents on two nodes. `revision` restarts them when the configuration has changed.
pub fn deployment(namespace: &str, image: &str, revision: &str) -> Value {
    let labels = json!({"app.kubernetes.io/name": NAME});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            // Two agents on one node would share a key.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": labels, "annotations": {"chandler.dev/config": revision}},
                "spec": pod_spec(image, &labels),
            },
        },
    })
}

fn pod_spec(image: &str, labels: &Value) -> Value {
    json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname",
        }]}},
        "containers": [{
            "name": "agent",
            "image": image,
            "args": ["--config", format!("{AGENT_CONFIG_DIR}/{AGENT_CONFIG_KEY}")],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                // The folder on the node belongs to root.
                "runAsUser": 0, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "volumeMounts": [
                {"name": "config", "mountPath": AGENT_CONFIG_DIR, "readOnly": true},
                {"name": "state", "mountPath": AGENT_STATE_DIR},
            ],
        }],
        "volumes": [
            {"name": "config", "secret": {"secretName": NAME, "defaultMode": 0o400}},
            {"name": "state", "hostPath": {"path": AGENT_STATE_DIR, "type": "DirectoryOrCreate"}},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_of_a_deployment_reaches_the_api_server_by_its_service() {
        let (installation, tunnel) = ("0".repeat(32), "1".repeat(32));
        let agent: SecretString = format!(
            "installation: {installation:?}\ntunnel: {tunnel:?}\ntarget: 127.0.0.1:6443\n\
             hubs: [{{address: 'hub.example:443', caBundle: PEM, token: canary}}]\n"
        )
        .into();
        let changed = configuration(&agent).unwrap();
        let changed: Value = serde_saphyr::from_str(changed.expose_secret()).unwrap();
        assert_eq!(changed["target"], "kubernetes.default.svc:443");
        assert_eq!(changed["hubs"][0]["token"], "canary");
        let broken = configuration(&"hubs: [canary".to_owned().into()).unwrap_err();
        assert!(!format!("{broken:#}").contains("canary"));
    }

    #[test]
    fn two_agents_run_on_two_nodes() {
        let deployment = deployment("chandler-agent", "agent:v1", "7");
        assert_eq!(deployment["spec"]["replicas"], 2);
        let template = &deployment["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"]["chandler.dev/config"], "7");
        assert_eq!(template["metadata"]["labels"], deployment["spec"]["selector"]["matchLabels"]);
        assert_eq!(template["spec"]["containers"][0]["image"], "agent:v1");
        assert_eq!(image("spec: {containers: [{image: 'agent:v1'}]}").unwrap(), "agent:v1");
    }
}
