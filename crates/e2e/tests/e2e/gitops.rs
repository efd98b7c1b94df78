//! The guide to GitOps: one Sync brings two clusters and their add-ons up, and every change after that is a push.

use std::sync::Arc;

use chandler_api::extensions::{ExtensionInstance, SyncObject};
use chandler_e2e::{git_guide::GitGuide, wait::eventually, world::World};
use chandler_sandbox::{clusters::unavailable_message, plane::Plane};
use k8s_openapi::api::{apps::v1::Deployment, networking::v1::NetworkPolicy, scheduling::v1::PriorityClass};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::Value;

/// Returns the replicas and the region of the add-on on a cluster.
async fn agent(plane: &Plane) -> Option<(i32, String)> {
    let deployments: Api<Deployment> = Api::namespaced(plane.client().await.unwrap(), "agent");
    let spec = deployments.get_opt("agent").await.unwrap()?.spec?;
    let environment = spec.template.spec?.containers.into_iter().next()?.env?;
    Some((spec.replicas?, environment.into_iter().next()?.value?))
}

/// Waits until the add-on of a cluster has these replicas and this region.
async fn wait_agent(plane: &Plane, replicas: i32, region: &str) {
    let expected = Some((replicas, region.to_owned()));
    eventually(&format!("the agent has {replicas} replicas in {region}"), || async {
        (agent(plane).await == expected).then_some(())
    })
    .await;
}

/// Returns the number of revisions of a release on a cluster, as `helm history` prints them.
fn revisions(world: &World, plane: &Plane, release: &str, namespace: &str) -> usize {
    let history: Value = world.helm(plane, &["history", release, "--namespace", namespace]);
    history.as_array().unwrap().len()
}

/// Waits until all instances are ready on both clusters.
async fn wait_instances(world: &World) {
    let instances: Api<ExtensionInstance> = Api::namespaced(world.client.clone(), &world.namespace);
    eventually("the add-ons are ready on both clusters", || async {
        let all = instances.list(&ListParams::default()).await.unwrap().items;
        let ready = |instance: &ExtensionInstance| {
            let status = instance.status.as_ref().map(|status| &status.placement);
            status.is_some_and(|status| {
                status.ready_clusters.as_deref() == Some("2/2")
                    && status.observed_generation == instance.metadata.generation
            })
        };
        (all.len() == 2 && all.iter().all(ready)).then_some(())
    })
    .await;
}

/// Waits until the Sync has applied a commit, or has reported why it cannot. Returns the message of its condition `Ready`.
async fn wait_synced(world: &World, commit: &str, applied: bool) -> String {
    let syncs: Api<SyncObject> = Api::namespaced(world.client.clone(), &world.namespace);
    eventually(&format!("the Sync has read {commit}, applied: {applied}"), || async {
        let status = syncs.get("clusters").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        let read = status.revision.as_deref() == Some(commit);
        (read && (ready.reason == "Applied") == applied).then_some(ready.message)
    })
    .await
}

async fn head(guide: &GitGuide) -> String {
    guide.command("git -C fleet rev-parse HEAD").await.trim().to_owned()
}

#[tokio::test]
async fn the_gitops_guide_works_from_an_empty_namespace() {
    let world = World::new("gitops").await;
    let manager = world.start_manager();
    let guide = GitGuide::new(&world, "gitops").await;
    guide.run("Create the repository", &["git clone", "cp "]).await;
    guide.localize_file("fleet/bootstrap.yaml");
    guide.run("Create the repository", &["git -C"]).await;
    guide.run_all("Start").await;
    let listed = guide.run_all("Watch").await;
    for name in ["agent", "policies", "blue", "green"] {
        assert!(listed.contains(name), "{name} is missing in {listed}");
    }
    let blue: Arc<Plane> = world.sandbox.wait_cluster(&world.namespace, "blue").await.unwrap();
    let green: Arc<Plane> = world.sandbox.wait_cluster(&world.namespace, "green").await.unwrap();
    wait_instances(&world).await;
    wait_agent(&blue, 1, "north").await;
    wait_agent(&green, 2, "south").await;
    for plane in [&blue, &green] {
        let client = plane.client().await.unwrap();
        let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), "default");
        policies.get("deny-ingress").await.unwrap();
        Api::<PriorityClass>::all(client).get("platform").await.unwrap();
        assert_eq!(revisions(&world, plane, "policies", "kube-system"), 1);
    }

    // A value that depends on the infrastructure changes on one cluster, and only there.
    guide.run_all("Change").await;
    wait_synced(&world, &head(&guide).await, true).await;
    wait_agent(&green, 3, "south").await;
    wait_instances(&world).await;
    manager.wait_idle().await;
    let history =
        || (revisions(&world, &blue, "agent", "agent"), revisions(&world, &green, "agent", "agent"));
    assert_eq!((agent(&blue).await, history()), (Some((1, "north".to_owned())), (1, 2)));

    // A bad push is reported with its file, and changes nothing.
    let versions = cluster_versions(&world).await;
    let described = guide.run_all("Mistakes").await;
    assert!(described.contains("green.yaml"), "{described}");
    let message = wait_synced(&world, &head(&guide).await, false).await;
    assert!(message.contains("green.yaml"), "{message}");
    manager.wait_idle().await;
    assert_eq!((cluster_versions(&world).await, history()), (versions.clone(), (1, 2)));

    guide.run_all("Revert").await;
    wait_synced(&world, &head(&guide).await, true).await;
    manager.wait_idle().await;
    assert_eq!((cluster_versions(&world).await, history()), (versions, (1, 2)), "nothing is left to do");
    guide.assert_complete();

    // The Cluster API passes the region of the Cluster on to its infrastructure, from which the add-on takes it.
    guide.command("sed -i 's/value: south/value: west/' fleet/clusters/green.yaml").await;
    guide.command("git -C fleet commit --quiet --all --message 'Move green to the west'").await;
    guide.command("git -C fleet push --quiet origin HEAD:main").await;
    wait_agent(&green, 1, "west").await;
    wait_instances(&world).await;
    manager.wait_idle().await;
    assert_eq!((agent(&blue).await, history()), (Some((1, "north".to_owned())), (1, 3)));
    for cluster in world.clusters().list(&ListParams::default()).await.unwrap().items {
        assert_eq!(unavailable_message(&cluster.data), None, "{} is Available", cluster.name_any());
    }
}

/// Returns the generations of the Clusters, which change with every change of their specs.
async fn cluster_versions(world: &World) -> Vec<(String, Option<i64>)> {
    let clusters = world.clusters().list(&ListParams::default()).await.unwrap().items;
    clusters.into_iter().map(|cluster| (cluster.name_any(), cluster.metadata.generation)).collect()
}
