//! Chandler refuses to start next to the Cluster API Add-on Provider for Helm (CAAPH), and explains how to remove it.

use chandler_e2e::{management_cluster::ManagementCluster, programs};
use chandler_sandbox::apply;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::DeleteParams};
use serde_json::json;

#[tokio::test]
async fn the_manager_refuses_to_start_while_caaph_is_installed() {
    let management = ManagementCluster::new("caaph").await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "controller-leader-election-caaph", "namespace": "default"},
        "spec": {"holderIdentity": "caaph-controller-manager-0"},
    });
    apply::apply(&management.client, &lease).await.unwrap();
    let (success, stderr) = management.run_manager().await;
    assert!(!success && stderr.contains("controller-leader-election-caaph is held"), "{stderr}");
    assert!(stderr.contains("clusterctl delete --addon helm"), "{stderr}");

    assert!(doctor(&management).contains("PROBLEM  caaph: the add-on provider for Helm: its leader Lease"));

    let mut idle = lease.clone();
    idle["spec"]["holderIdentity"] = json!("");
    apply::apply(&management.client, &idle).await.unwrap();
    let text = doctor(&management);
    for expected in [
        "warning  caaph: the add-on provider for Helm: its Lease default/controller-leader-election-caaph exists without a \
         holder",
        "→ `kubectl delete lease controller-leader-election-caaph --namespace default`",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }

    let leases: Api<Lease> = Api::namespaced(management.client.clone(), "default");
    leases.delete("controller-leader-election-caaph", &DeleteParams::default()).await.unwrap();
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "caaph-validating-webhook-configuration"},
        "webhooks": [{
            "name": "validation.helmchartproxy.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{
                "apiGroups": ["addons.cluster.x-k8s.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"],
                "resources": ["helmchartproxies"],
            }],
        }],
    });
    apply::apply(&management.client, &webhook).await.unwrap();
    let (success, stderr) = management.run_manager().await;
    assert!(!success && stderr.contains("caaph-validating-webhook-configuration is registered"), "{stderr}");
}

fn doctor(management: &ManagementCluster) -> String {
    let mut command = std::process::Command::new(programs::chandler());
    command.args(["doctor", "--kubeconfig"]).arg(management.plane.kubeconfig_path());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}
