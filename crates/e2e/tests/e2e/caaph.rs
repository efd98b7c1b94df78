//! Chandler does not start beside the provider whose place it takes, and says what to do.

use chandler_e2e::{bare::Bare, programs};
use chandler_sandbox::apply;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::DeleteParams};
use serde_json::json;

#[tokio::test]
async fn it_refuses_to_start_while_the_other_provider_is_there() {
    let bare = Bare::new("caaph").await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "controller-leader-election-caaph", "namespace": "default"},
        "spec": {"holderIdentity": "caaph-controller-manager-0"},
    });
    apply::apply(&bare.client, &lease).await.unwrap();
    let (started, complaint) = bare.manager_ends().await;
    assert!(!started && complaint.contains("controller-leader-election-caaph is held"), "{complaint}");
    assert!(complaint.contains("clusterctl delete --addon helm"), "{complaint}");

    assert!(doctor(&bare).contains("PROBLEM  caaph: the add-on provider for Helm: its leader Lease"));

    let mut idle = lease.clone();
    idle["spec"]["holderIdentity"] = json!("");
    apply::apply(&bare.client, &idle).await.unwrap();
    let text = doctor(&bare);
    for words in [
        "warning  caaph: the add-on provider for Helm: its Lease default/controller-leader-election-caaph exists without a \
         holder",
        "→ `kubectl delete lease controller-leader-election-caaph --namespace default`",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }

    let leases: Api<Lease> = Api::namespaced(bare.client.clone(), "default");
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
    apply::apply(&bare.client, &webhook).await.unwrap();
    let (started, complaint) = bare.manager_ends().await;
    assert!(
        !started && complaint.contains("caaph-validating-webhook-configuration is registered"),
        "{complaint}"
    );
}

fn doctor(bare: &Bare) -> String {
    let mut command = std::process::Command::new(programs::chandler());
    command.args(["doctor", "--kubeconfig"]).arg(bare.plane.kubeconfig_path());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}
