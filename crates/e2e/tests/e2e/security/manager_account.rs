//! The account of the manager, with the permissions that Chandler is shipped with, cannot become another account.

use chandler_api::{FIELD_MANAGER, extensions::POLICY_ANNOTATION};
use chandler_e2e::{
    manager::Manager,
    self_hosted::{NAMESPACE, SelfHosted},
    wait::eventually,
};
use chandler_sandbox::{
    apply, crds::wait_served, dynamic_api, kubeconfig, requests::AuditEntry, service_account,
};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::Secret,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const SYSTEM: &str = "chandler-system";
const SECRETS_POLICY: &str = "chandler-system-manager-secrets";
const HOOKS_POLICY: &str = "chandler-system-manager-hooks";
const RBAC: &str = include_str!("../../../../../deploy/rbac.yaml");

/// Returns a client with the token of the manager.
async fn manager_client(test: &SelfHosted) -> Client {
    let content =
        service_account::kubeconfig(&test.management.plane, SYSTEM, "chandler-manager").await.unwrap();
    kubeconfig::client(&content).await.unwrap()
}

fn owner(api_version: &str, kind: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": "one", "uid": "7d4a0f4e-8e4e-4a57-9a4a-000000000001"}])
}

fn secret(namespace: &str, name: &str, type_: &str, owners: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": type_, "data": {"value": "YQ==", "other": "Yg=="},
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"kept": "yes"}, "ownerReferences": owners,
            "annotations": {"kubernetes.io/service-account.name": "default"},
        },
    })
}

/// Asks the API server whether a Secret could be created. Returns why it could not.
async fn creation_refused(client: &Client, object: &Value) -> Option<String> {
    let object: Secret = serde_json::from_value(object.clone()).unwrap();
    let api: Api<Secret> = Api::namespaced(client.clone(), &object.namespace().unwrap());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&dry_run, &object).await.err().map(|error| error.to_string())
}

/// Asks the API server whether a Secret could be changed. Returns why it could not.
async fn change_refused(client: &Client, name: &str, patch: &Value) -> Option<String> {
    let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    api.patch(name, &dry_run, &Patch::Merge(patch)).await.err().map(|error| error.to_string())
}

fn assert_refused(refused: Option<&str>, policy: &str, case: &str) {
    let message = refused.unwrap_or_else(|| panic!("{case} is allowed"));
    assert!(message.contains(policy), "{case} is refused for another reason: {message}");
}

async fn wait_for_policy(client: &Client) {
    let stolen = secret("kube-system", "stolen", "kubernetes.io/service-account-token", &json!([]));
    eventually("the policy is in effect", || async {
        creation_refused(client, &stolen).await.filter(|message| message.contains(SECRETS_POLICY))
    })
    .await;
}

/// Without the policy, the holder of the manager's token gets the token of any ServiceAccount.
#[tokio::test]
async fn a_token_of_another_account_can_be_requested_only_without_the_policy() {
    let test = SelfHosted::new("token-theft").await;
    let (administrator, attacker) = (test.management.client.clone(), manager_client(&test).await);
    wait_for_policy(&attacker).await;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(administrator.clone());
    bindings.delete(SECRETS_POLICY, &DeleteParams::default()).await.unwrap();
    let stolen = secret("kube-system", "stolen", "kubernetes.io/service-account-token", &json!([]));
    eventually("the attack succeeds without the policy", || async {
        creation_refused(&attacker, &stolen).await.is_none().then_some(())
    })
    .await;
    apply::apply_all(&administrator, RBAC).await.unwrap();
    wait_for_policy(&attacker).await;
    assert_eq!(creation_refused(&administrator, &stolen).await, None, "the policy concerns no other account");
    secrets_that_the_manager_does_not_write_are_refused(&administrator, &attacker).await;
    hooks_of_others_are_refused(&administrator, &attacker).await;
    no_other_way_is_allowed(&attacker).await;
}

async fn secrets_that_the_manager_does_not_write_are_refused(administrator: &Client, manager: &Client) {
    let (release, cluster) = ("chandler.dev/v1alpha1", "cluster.x-k8s.io/v1beta2");
    let own = || owner(release, "AddonRelease");
    let creations = [
        ("values", secret(NAMESPACE, "a-values", "Opaque", &own()), true),
        ("agent", secret(NAMESPACE, "a-tunnel", "Opaque", &owner(release, "ClusterTunnel")), true),
        (
            "values of a HelmChartProxy",
            secret(NAMESPACE, "a", "Opaque", &owner("addons.cluster.x-k8s.io/v1alpha1", "HelmChartProxy")),
            true,
        ),
        ("keys", secret(SYSTEM, "chandler-tunnel-keys", "Opaque", &json!([])), true),
        ("keys elsewhere", secret(NAMESPACE, "chandler-tunnel-keys", "Opaque", &json!([])), false),
        ("no owner", secret(NAMESPACE, "a", "Opaque", &json!([])), false),
        ("another owner", secret(NAMESPACE, "a", "Opaque", &owner(cluster, "Cluster")), false),
        (
            "an owner of another group",
            secret(NAMESPACE, "a", "Opaque", &owner("example.com/v1", "AddonRelease")),
            false,
        ),
        (
            "a token with an owner",
            secret(NAMESPACE, "a", "kubernetes.io/service-account-token", &own()),
            false,
        ),
        ("another type", secret(NAMESPACE, "a", "example.com/other", &own()), false),
        ("a kubeconfig", secret(NAMESPACE, "a-kubeconfig", "cluster.x-k8s.io/secret", &json!([])), false),
    ];
    for (case, object, allowed) in creations {
        let refused = creation_refused(manager, &object).await;
        if allowed {
            assert_eq!(refused, None, "{case}");
        } else {
            assert_refused(refused.as_deref(), SECRETS_POLICY, case);
        }
    }
    for object in [
        secret(NAMESPACE, "own-values", "Opaque", &own()),
        secret(NAMESPACE, "login", "Opaque", &json!([])),
        secret(NAMESPACE, "blue-kubeconfig", "cluster.x-k8s.io/secret", &owner(cluster, "Cluster")),
    ] {
        apply::apply(administrator, &object).await.unwrap();
    }
    create_without_owner(administrator).await;
    let metadata = |field: &str, value: Value| json!({"metadata": {field: value}});
    let changes = [
        ("own-values", json!({"stringData": {"value": "new"}}), true),
        ("own-values", metadata("ownerReferences", owner(release, "ExtensionInstance")), true),
        ("own-values", metadata("ownerReferences", json!([])), false),
        ("login", json!({"stringData": {"value": "new"}}), false),
        ("login", metadata("ownerReferences", own()), false),
        ("without-owner-yet", metadata("ownerReferences", own()), true),
        ("without-owner-yet", json!({"stringData": {"value": "new"}}), false),
        ("blue-kubeconfig", json!({"stringData": {"value": "new"}}), true),
        ("blue-kubeconfig", json!({"stringData": {"other": "new"}}), false),
        ("blue-kubeconfig", json!({"stringData": {"more": "new"}}), false),
        ("blue-kubeconfig", json!({"data": {"other": null}}), false),
        ("blue-kubeconfig", metadata("labels", json!({"kept": "no"})), false),
        ("blue-kubeconfig", metadata("ownerReferences", json!([])), false),
    ];
    for (name, patch, allowed) in changes {
        let (refused, case) = (change_refused(manager, name, &patch).await, format!("{name}: {patch}"));
        if allowed {
            assert_eq!(refused, None, "{case}");
        } else {
            assert_refused(refused.as_deref(), SECRETS_POLICY, &case);
        }
    }
}

/// Creates a Secret as an earlier version of the manager did that was interrupted before it set the owner.
async fn create_without_owner(administrator: &Client) {
    let object = secret(NAMESPACE, "without-owner-yet", "Opaque", &json!([]));
    let object: Secret = serde_json::from_value(object).unwrap();
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let secrets: Api<Secret> = Api::namespaced(administrator.clone(), NAMESPACE);
    secrets.create(&parameters, &object).await.unwrap();
}

async fn hooks_of_others_are_refused(administrator: &Client, manager: &Client) {
    let version = "runtime.cluster.x-k8s.io/v1beta2";
    let resource = dynamic_api::resource(version, "ExtensionConfig");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", resource.plural, resource.group)},
        "spec": {
            "group": resource.group, "scope": "Cluster",
            "names": {"plural": resource.plural, "singular": "extensionconfig", "kind": resource.kind},
            "versions": [{"name": "v1beta2", "served": true, "storage": true, "schema": schema}],
        },
    });
    apply::apply(administrator, &crd).await.unwrap();
    wait_served(administrator, &resource).await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(manager.clone(), &resource);
    let dry_run = PatchParams { dry_run: true, ..PatchParams::apply("test") };
    for (name, allowed) in
        [("chandler", true), ("chandler-fleet", true), ("other", false), ("chandlery", false)]
    {
        let object = json!({
            "apiVersion": version, "kind": "ExtensionConfig", "metadata": {"name": name},
            "spec": {"clientConfig": {"url": "https://hooks.example"}},
        });
        let refused =
            api.patch(name, &dry_run, &Patch::Apply(&object)).await.err().map(|error| error.to_string());
        if allowed {
            assert_eq!(refused, None, "{name}");
        } else {
            assert_refused(refused.as_deref(), HOOKS_POLICY, name);
        }
    }
}

/// Checks the other permissions with which an account becomes another one.
async fn no_other_way_is_allowed(manager: &Client) {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(manager.clone());
    for (verb, group, resource) in [
        ("create", "", "serviceaccounts/token"),
        ("impersonate", "", "serviceaccounts"),
        ("impersonate", "", "users"),
        ("impersonate", "", "groups"),
        ("impersonate", "authentication.k8s.io", "uids"),
        ("list", "", "secrets"),
        ("watch", "", "secrets"),
        ("delete", "", "secrets"),
        ("create", "", "pods"),
        ("create", "", "pods/exec"),
        ("patch", "apps", "deployments"),
        ("create", "batch", "jobs"),
        ("create", "rbac.authorization.k8s.io", "rolebindings"),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
        ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
        ("bind", "rbac.authorization.k8s.io", "clusterroles"),
        ("create", "certificates.k8s.io", "certificatesigningrequests"),
        ("update", "certificates.k8s.io", "certificatesigningrequests/approval"),
        ("delete", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ] {
        let (name, subresource) = match resource.split_once('/') {
            Some((name, subresource)) => (name, Some(subresource.to_owned())),
            None => (resource, None),
        };
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(name.to_owned()),
            subresource,
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            non_resource_attributes: None,
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let review = reviews.create(&PostParams::default(), &review).await.unwrap();
        assert!(!review.status.unwrap().allowed, "{verb} {resource}");
    }
}

/// The manager writes values that contain data of a Secret, and nothing that it sends is refused.
#[tokio::test]
async fn the_manager_writes_its_secrets_under_the_policy() {
    let test = SelfHosted::new("secrets-policy").await;
    wait_for_policy(&manager_client(&test).await).await;
    test.create_cluster("alpha", &test.kubeconfig(), &json!({})).await;
    test.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": NAMESPACE},
        "stringData": {"greeting": "CANARY-4f1"},
    }))
    .await;
    let login = json!({"secret": {"name": "login", "key": "greeting"}, "parameter": "greeting"});
    test.apply(&json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonPolicy",
        "metadata": {"name": "values", "namespace": NAMESPACE}, "spec": {"valuesFrom": [login]},
    }))
    .await;
    let mut audit = test.management.plane.audit_log();
    let manager = Manager::from_process(test.management.start_manager());
    test.apply(&json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": "hello", "namespace": NAMESPACE, "annotations": {POLICY_ANNOTATION: "values"}},
        "spec": {
            "clusterSelector": {"matchLabels": {"cluster": "alpha"}}, "repoURL": test.repository.url(),
            "chartName": "hello", "version": "1.0.0", "releaseName": "hello", "namespace": NAMESPACE,
            "tlsConfig": {"caSecret": {"name": "ca"}},
        },
    }))
    .await;
    test.wait_ready("hello", 1).await;
    let secrets: Api<Secret> = Api::namespaced(test.management.client.clone(), NAMESPACE);
    eventually("the release owns the Secret with its values", || async {
        let all = secrets.list(&ListParams::default()).await.unwrap().items;
        let is_owned =
            |secret: &Secret| secret.owner_references().iter().any(|owner| owner.kind == "HelmReleaseProxy");
        all.iter().any(is_owned).then_some(())
    })
    .await;
    let user = format!("system:serviceaccount:{SYSTEM}:chandler-manager");
    let entries = audit.read().unwrap();
    // Secrets of `parametersFrom` are watched only in namespaces that permit it, and polled elsewhere.
    let is_refused = |entry: &&AuditEntry| entry.user == user && entry.code == 403 && entry.verb != "watch";
    let forbidden: Vec<_> = entries.iter().filter(is_refused).collect();
    assert!(forbidden.is_empty(), "{forbidden:?}");
    manager.stop().await;
}
