//! The patch of a ClusterClass that puts the agent on control plane nodes.

use anyhow::{Context as _, Result};
use chandler_api::tunnel::{AGENT_CONFIG_KEY, AGENT_POD_KEY, TUNNEL_SECRET_SUFFIX, TUNNEL_VARIABLE};
use chandler_core::tunnel::AGENT_CONFIG_DIR;
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::output::StructuredFormat;

#[derive(Debug, Args)]
pub struct ClassPatchArgs {
    /// The control plane provider of the class
    #[arg(long = "for", value_enum, value_name = "PROVIDER")]
    provider: Provider,
    /// API version of the control plane template that the class names [default: that of the provider's newest release]
    #[arg(long, value_name = "VERSION")]
    template_version: Option<String>,
    /// The control plane template has no `files` yet. Without it, the two files are added to those of the template
    #[arg(long)]
    without_files: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = StructuredFormat::Yaml)]
    output: StructuredFormat,
}

/// A control plane provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Provider {
    /// KubeadmControlPlane of Cluster API
    Kubeadm,
    /// `RKE2ControlPlane`
    Rke2,
    /// `KThreesControlPlane`
    K3s,
}

impl Provider {
    /// Returns kind and API version of the control plane template.
    fn template(self) -> (&'static str, &'static str) {
        match self {
            Self::Kubeadm => ("KubeadmControlPlaneTemplate", "v1beta2"),
            Self::Rke2 => ("RKE2ControlPlaneTemplate", "v1beta2"),
            Self::K3s => ("KThreesControlPlaneTemplate", "v1beta2"),
        }
    }

    /// Returns the path of the list of files in the template.
    fn files(self) -> &'static str {
        match self {
            Self::Kubeadm => "/spec/template/spec/kubeadmConfigSpec/files",
            Self::Rke2 => "/spec/template/spec/files",
            Self::K3s => "/spec/template/spec/kthreesConfigSpec/files",
        }
    }

    /// Returns the folder from which the kubelet starts static Pods.
    fn static_pods(self) -> &'static str {
        match self {
            Self::Kubeadm => "/etc/kubernetes/manifests",
            Self::Rke2 => "/var/lib/rancher/rke2/agent/pod-manifests",
            Self::K3s => "/var/lib/rancher/k3s/agent/pod-manifests",
        }
    }
}

pub fn run(arguments: &ClassPatchArgs) -> Result<()> {
    let yaml = yaml(arguments);
    match arguments.output {
        StructuredFormat::Yaml => print!("{yaml}"),
        StructuredFormat::Json => {
            let value: Value = serde_saphyr::from_str(&yaml).context("converting the patch")?;
            print!("{}", StructuredFormat::Json.text(&value)?);
        }
    }
    Ok(())
}

/// Returns the patch with comments. The names of Secrets are templates: Cluster API fills in the name of each Cluster.
fn yaml(arguments: &ClassPatchArgs) -> String {
    let ClassPatchArgs { provider, template_version, without_files, output: _ } = arguments;
    let (kind, version) = provider.template();
    let version = template_version.as_deref().unwrap_or(version);
    let mut text = format!(
        "\
# Add both lists to `spec` of the ClusterClass.
variables:
  # Also enables the tunnel: Chandler needs no label on Clusters with this variable.
  - name: {TUNNEL_VARIABLE}
    required: false
    schema:
      openAPIV3Schema:
        type: boolean
        default: false
patches:
  - name: chandler-tunnel
    description: Puts the agent of Chandler's tunnel on control plane nodes.
    enabledIf: '{{{{ .{TUNNEL_VARIABLE} }}}}'
    definitions:
      - selector:
          apiVersion: controlplane.cluster.x-k8s.io/{version}
          kind: {kind}
          matchResources:
            controlPlane: true
        jsonPatches:
"
    );
    let config = format!("{AGENT_CONFIG_DIR}/{AGENT_CONFIG_KEY}");
    let pod = format!("{}/chandler-agent.yaml", provider.static_pods());
    // The configuration is written first, so that the agent finds it when it starts.
    let files = [(config.as_str(), AGENT_CONFIG_KEY), (pod.as_str(), AGENT_POD_KEY)];
    let path = provider.files();
    if *without_files {
        text.push_str(&operation(path));
        for (file, key) in files {
            text.push_str(&entry(file, key, "                - ", "                  "));
        }
    } else {
        for (file, key) in files {
            text.push_str(&operation(&format!("{path}/-")));
            text.push_str(&entry(file, key, "                ", "                "));
        }
    }
    text
}

/// Returns the beginning of an operation, up to its value.
fn operation(path: &str) -> String {
    let value = "            valueFrom:\n              template: |\n";
    format!("          - op: add\n            path: {path}\n{value}")
}

/// Returns a file whose content is in the Secret of the tunnel. A missing Secret holds the bootstrap data back.
fn entry(path: &str, key: &str, first: &str, rest: &str) -> String {
    format!(
        "\
{first}path: {path}
{rest}owner: root:root
{rest}permissions: \"0600\"
{rest}contentFrom:
{rest}  secret:
{rest}    name: {{{{ .builtin.cluster.name }}}}{TUNNEL_SECRET_SUFFIX}
{rest}    key: {key}
"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patch(provider: Provider, without_files: bool) -> Value {
        let arguments = ClassPatchArgs {
            provider,
            template_version: None,
            without_files,
            output: StructuredFormat::Yaml,
        };
        serde_saphyr::from_str(&yaml(&arguments)).unwrap()
    }

    /// Returns the value of a template as Cluster API renders it for the Cluster `blue`.
    fn rendered(operation: &Value) -> Value {
        let template = operation["valueFrom"]["template"].as_str().unwrap();
        serde_saphyr::from_str(&template.replace("{{ .builtin.cluster.name }}", "blue")).unwrap()
    }

    #[test]
    fn two_files_are_added_for_every_provider() {
        let rows = [
            (
                Provider::Kubeadm,
                "/spec/template/spec/kubeadmConfigSpec/files/-",
                "/etc/kubernetes/manifests/chandler-agent.yaml",
            ),
            (
                Provider::Rke2,
                "/spec/template/spec/files/-",
                "/var/lib/rancher/rke2/agent/pod-manifests/chandler-agent.yaml",
            ),
            (
                Provider::K3s,
                "/spec/template/spec/kthreesConfigSpec/files/-",
                "/var/lib/rancher/k3s/agent/pod-manifests/chandler-agent.yaml",
            ),
        ];
        for (provider, path, pod) in rows {
            let patch = patch(provider, false);
            let definition = &patch["patches"][0]["definitions"][0];
            assert_eq!(definition["selector"]["kind"], provider.template().0);
            let operations = definition["jsonPatches"].as_array().unwrap();
            assert!(operations.iter().all(|one| one["op"] == "add" && one["path"] == path), "{operations:?}");
            let file = |path: &str, key: &str| {
                json!({
                    "path": path, "owner": "root:root", "permissions": "0600",
                    "contentFrom": {"secret": {"name": "blue-tunnel", "key": key}},
                })
            };
            let files: Vec<_> = operations.iter().map(rendered).collect();
            assert_eq!(files, [file("/etc/chandler-agent/agent.yaml", "agent.yaml"), file(pod, "pod.yaml")]);
        }
    }

    #[test]
    fn a_template_without_files_gets_the_list() {
        let with = patch(Provider::Kubeadm, false);
        let without = patch(Provider::Kubeadm, true);
        let operations = |patch: &Value| patch["patches"][0]["definitions"][0]["jsonPatches"].clone();
        let list = operations(&without);
        assert_eq!(list.as_array().unwrap().len(), 1);
        assert_eq!(list[0]["path"], "/spec/template/spec/kubeadmConfigSpec/files");
        let single: Vec<_> = operations(&with).as_array().unwrap().iter().map(rendered).collect();
        assert_eq!(rendered(&list[0]), json!(single));
    }

    #[test]
    fn the_variable_enables_the_patch() {
        let patch = patch(Provider::Rke2, false);
        assert_eq!(patch["variables"][0]["name"], "tunnel");
        assert_eq!(patch["patches"][0]["enabledIf"], "{{ .tunnel }}");
    }
}
