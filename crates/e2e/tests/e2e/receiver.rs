//! Webhooks that request polls of Sources: signatures, and the Service that reaches only the leader.

use chandler_e2e::{manager::Manager, wait::eventually, world::World};
use chandler_sandbox::{git_server::GitServer, plane::free_port, webhook};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, api::DeleteParams};
use serde_json::json;

use crate::git_sources::{sources, wait_revision};

const SYSTEM: &str = "chandler-system";
const SERVICE: &str = "chandler-receiver";
/// The example of GitHub's documentation: a secret, a body, and its signature.
const SECRET: &str = "It's a Secret to Everybody";
const BODY: &str = "Hello, World!";
const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

/// Sends a webhook. Returns the status line of the response.
async fn post(address: &str, path: &str, header: &str) -> String {
    webhook::post(address, path, header, BODY).await.unwrap()
}

/// Starts a manager whose Pod has this address.
fn start(world: &World, address: &str, ip: &str) -> Manager {
    let service = ["--receiver-service", SERVICE, "--receiver-pod-ip", ip];
    world.start_manager_with(&[&["--receiver-address", address][..], &service].concat())
}

async fn wait_endpoint(world: &World, ip: &str) {
    let slices = Api::<EndpointSlice>::namespaced(world.client.clone(), SYSTEM);
    eventually(&format!("the endpoint is {ip}"), || async {
        let slice = slices.get_opt("chandler-receiver-ipv4").await.unwrap()?;
        let addresses: Vec<_> = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses).collect();
        (addresses == [ip]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_signed_webhook_requests_a_poll_from_the_leader() {
    let world = World::new("receiver").await;
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": SYSTEM},
            "spec": {"clusterIP": "None", "ports": [{"name": "receiver", "port": 80}]},
        }))
        .await;
    let first = start(&world, &address, "10.0.0.7");
    wait_endpoint(&world, "10.0.0.7").await;
    let server = GitServer::start(world.sandbox.authority(), &world.dir.join("served")).await.unwrap();
    let tree = server.create("fleet").await.unwrap();
    let one = tree.commit("one", &[("a.yaml", "a: 1\n")]).await.unwrap();
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook", "namespace": world.namespace},
            "stringData": {"github": SECRET, "gitlab": "canary-of-the-hook\n"},
        }))
        .await;
    for key in ["github", "gitlab"] {
        world
            .apply(&json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
                "metadata": {"name": key, "namespace": world.namespace},
                "spec": {
                    "git": {"url": server.url("fleet")}, "interval": "1h",
                    "certificateAuthority": {"name": "ca", "key": "ca.crt"},
                    "receiver": {"secret": {"name": "hook", "key": key}},
                },
            }))
            .await;
        wait_revision(&world, key, &one).await;
    }

    let two = tree.commit("two", &[("a.yaml", "a: 2\n")]).await.unwrap();
    let path = |name: &str| format!("/hooks/{}/{name}", world.namespace);
    let (signed, token) =
        (format!("X-Hub-Signature-256: {SIGNATURE}"), "X-Gitlab-Token: canary-of-the-hook".to_owned());
    for (name, header) in
        [("gitlab", &*signed), ("github", &*token), ("other", &*signed), ("github", "X-A: b")]
    {
        let refused = post(&address, &path(name), header).await;
        assert!(refused.contains("401"), "{name} {header}: {refused}");
    }
    let status = sources(&world).get("github").await.unwrap().status.unwrap();
    assert_eq!(status.revision.as_deref(), Some(&*one), "a refused webhook causes no poll");
    let accepted = post(&address, &path("github"), &signed).await;
    assert!(accepted.contains("202"), "{accepted}");
    // One webhook serves all Sources of the repository.
    wait_revision(&world, "github", &two).await;
    wait_revision(&world, "gitlab", &two).await;
    let last = tree.commit("three", &[("a.yaml", "a: 3\n")]).await.unwrap();
    let accepted = post(&address, &path("gitlab"), &token).await;
    assert!(accepted.contains("202"), "{accepted}");
    wait_revision(&world, "gitlab", &last).await;

    // Both have the same address: only the leader listens, and only the leader is an endpoint.
    let second = start(&world, &address, "10.0.0.8");
    eventually("the second manager waits for the Lease", || async {
        second.logs().contains("another process leads").then_some(())
    })
    .await;
    wait_endpoint(&world, "10.0.0.7").await;
    first.stop().await;
    wait_endpoint(&world, "10.0.0.8").await;
    let four = tree.commit("four", &[("a.yaml", "a: 4\n")]).await.unwrap();
    assert!(post(&address, &path("gitlab"), &token).await.contains("202"));
    wait_revision(&world, "github", &four).await;
    let services = Api::<Service>::namespaced(world.client.clone(), SYSTEM);
    services.delete(SERVICE, &DeleteParams::default()).await.unwrap();
}
