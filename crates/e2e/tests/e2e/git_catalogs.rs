//! ExtensionCatalogs that are folders of charts in a Source: what a commit changes, and what a bad one does not.

use chandler_api::extensions::{AddonRelease, CatalogStatus, Source};
use chandler_e2e::{
    extension_world::ExtensionWorld,
    git_repository::{Repository, wait_pinned, wait_revision},
    wait::eventually,
    world::config_value,
};
use kube::{Api, api::DeleteParams};
use serde_json::json;

use crate::catalogs::{catalogs, chandler, wait_reason};

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n\
                        data:\n  greeting: {{ .Values.greeting | quote }}\n";

fn metadata(version: &str) -> String {
    format!("apiVersion: v2\nname: greeter\nversion: {version}\ndescription: Greets\n")
}

/// Pushes the chart to the folder of the catalog.
async fn push_chart(repository: &Repository, version: &str, greeting: &str) -> String {
    let values = format!("greeting: {greeting}\n");
    let files = [
        ("charts/greeter/Chart.yaml", metadata(version)),
        ("charts/greeter/values.yaml", values),
        ("charts/greeter/templates/map.yaml", TEMPLATE.to_owned()),
    ];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    repository.push(&files).await
}

/// Applies a catalog of the folder `charts` of the Source `apps`.
async fn apply_catalog(test: &ExtensionWorld) {
    test.world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "git", "namespace": test.world.namespace},
            "spec": {"source": {"sourceRef": {"name": "apps"}, "path": "charts"}},
        }))
        .await;
}

/// Applies an instance of a version of the chart.
async fn apply_greeter(test: &ExtensionWorld, version: &str) {
    let extension = json!({"name": "greeter", "catalog": "git"});
    test.apply_instance("greeter", "", json!({"extension": extension, "version": version})).await;
}

/// Waits until the catalog offers the packages of a revision.
async fn wait_read(test: &ExtensionWorld, revision: &str) -> CatalogStatus {
    eventually(&format!("the catalog is read from {revision}"), || async {
        let status = catalogs(&test.world).get("git").await.unwrap().status?;
        let is_ready = status.conditions.iter().any(|ready| ready.status == "True");
        (is_ready && status.revision.as_deref() == Some(revision)).then_some(status)
    })
    .await
}

fn message(status: &CatalogStatus) -> &str {
    &status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap().message
}

fn pinned(release: &AddonRelease) -> (Option<&str>, Option<&str>) {
    let path = release.spec.source.path.as_deref();
    (path, release.spec.pinned.as_ref().map(|pinned| pinned.revision.as_str()))
}

#[tokio::test]
async fn a_folder_of_charts_is_a_catalog_and_only_commits_to_it_change_it() {
    let test = ExtensionWorld::new("git-catalog").await;
    let alpha = test.world.create_cluster("alpha").await;
    let manager = test.world.start_manager();
    let repository = Repository::new(&test).await;
    let first = push_chart(&repository, "0.1.0", "Hello").await;
    apply_catalog(&test).await;
    let read = wait_read(&test, &first).await;
    assert_eq!(read.packages, Some(1));
    apply_greeter(&test, "0.1.0").await;
    let release = test.wait_ready("git/greeter", "alpha", "0.1.0").await;
    assert_eq!(pinned(&release), (Some("charts/greeter"), Some(first.as_str())));
    assert_eq!(release.spec.source.source_ref.as_ref().unwrap().name, "apps");
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Hello"));

    // A commit that does not change the folder writes neither the catalog nor a release object.
    let elsewhere = repository.push(&[("README.md", "text")]).await;
    wait_revision(&test, &elsewhere).await;
    manager.wait_idle().await;
    assert_eq!(wait_reason(&test.world, "git", "Ready").await, read);
    let same = test.wait_ready("git/greeter", "alpha", "0.1.0").await;
    assert_eq!(same.metadata.generation, release.metadata.generation);
    eventually("the instance counts as up to date at the new revision", || async {
        let status = test.instances().get("greeter").await.unwrap().status?;
        let progress = status.sources.into_iter().next()?;
        (progress.revision.as_deref() == Some(elsewhere.as_str()) && progress.behind == 0).then_some(())
    })
    .await;

    // Another version is installed on request, and another content of the same version at once.
    let second = push_chart(&repository, "0.2.0", "Good morning").await;
    wait_read(&test, &second).await;
    apply_greeter(&test, "0.2.0").await;
    let release = test.wait_ready("git/greeter", "alpha", "0.2.0").await;
    assert_eq!(pinned(&release), (Some("charts/greeter"), Some(second.as_str())));
    let third = push_chart(&repository, "0.2.0", "Good evening").await;
    wait_pinned(&test, "greeter", "alpha", &third).await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Good evening"));
    assert_eq!(test.world.history(&alpha, "greeter").len(), 3);
    assert_eq!(wait_read(&test, &third).await.packages, Some(1));

    // The chart can also be named as the source of an instance.
    test.world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": "direct", "namespace": test.world.namespace},
            "spec": {
                "source": {"catalog": {"name": "git"}, "chart": "greeter"},
                "release": {"name": "direct", "namespace": "default"}, "clusters": {"name": "alpha"},
            },
        }))
        .await;
    wait_pinned(&test, "direct", "alpha", &third).await;

    let search = format!("chandler catalog search greets --namespace {}", test.world.namespace);
    let (ok, found, errors) = chandler(&test.world, &search).await;
    assert!(ok && found.contains("git/greeter") && found.contains("0.2.0"), "{found}{errors}");
    let show = format!("chandler catalog show git/greeter --namespace {}", test.world.namespace);
    let (ok, shown, errors) = chandler(&test.world, &show).await;
    assert!(ok && shown.contains("greeting: Good evening"), "{shown}{errors}");
}

#[tokio::test]
async fn a_bad_commit_and_a_missing_source_keep_the_last_good_charts() {
    let test = ExtensionWorld::new("git-catalog-bad").await;
    let alpha = test.world.create_cluster("alpha").await;
    let manager = test.world.start_manager();
    let repository = Repository::new(&test).await;
    apply_catalog(&test).await;
    let missing = wait_reason(&test.world, "git", "SourceUnavailable").await;
    assert!(message(&missing).contains("no packages are offered"), "{missing:?}");
    let first = push_chart(&repository, "0.1.0", "Hello").await;
    wait_read(&test, &first).await;
    apply_greeter(&test, "0.1.0").await;
    test.wait_ready("git/greeter", "alpha", "0.1.0").await;

    // The condition names the file and the line, and a new cluster gets the last good chart.
    let broken = metadata("soon");
    repository.push(&[("charts/greeter/Chart.yaml", broken.as_str())]).await;
    let bad = wait_reason(&test.world, "git", "InvalidPackage").await;
    assert_eq!((bad.packages, bad.revision.as_deref()), (Some(1), Some(first.as_str())));
    let reported = message(&bad);
    assert!(
        reported.contains("greeter/Chart.yaml, line 3: version: \"soon\" is not a version"),
        "{reported}"
    );
    assert!(reported.contains(&format!("the 1 packages read from revision {first}")), "{reported}");
    let _beta = test.world.create_cluster("beta").await;
    test.wait_ready("git/greeter", "beta", "0.1.0").await;

    // A folder that is gone empties nothing, and neither does a restart.
    repository.tree.git(&["rm", "-r", "--quiet", "charts"]).await.unwrap();
    repository.push(&[("README.md", "text")]).await;
    let gone = wait_reason(&test.world, "git", "PackageNotFound").await;
    assert_eq!((gone.packages, gone.revision.as_deref()), (Some(1), Some(first.as_str())));
    manager.stop().await;
    let manager = test.world.start_manager();
    manager.wait_idle().await;
    let gone = wait_reason(&test.world, "git", "PackageNotFound").await;
    assert_eq!(gone.packages, Some(1));

    // Good files again are enough.
    let restored = push_chart(&repository, "0.1.0", "Hello").await;
    wait_revision(&test, &restored).await;
    let again = wait_reason(&test.world, "git", "Ready").await;
    assert_eq!(again.revision.as_deref(), Some(first.as_str()), "the content is that of the first commit");

    let sources: Api<Source> = Api::namespaced(test.world.client.clone(), &test.world.namespace);
    sources.delete("apps", &DeleteParams::default()).await.unwrap();
    let deleted = wait_reason(&test.world, "git", "SourceUnavailable").await;
    assert_eq!((deleted.packages, deleted.revision.as_deref()), (Some(1), Some(first.as_str())));
    assert!(message(&deleted).contains("apps does not exist"), "{deleted:?}");
    manager.wait_idle().await;
    for cluster in ["alpha", "beta"] {
        test.wait_ready("git/greeter", cluster, "0.1.0").await;
    }
    assert_eq!(test.world.history(&alpha, "greeter").len(), 1, "nothing was installed again");
}
