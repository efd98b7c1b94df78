//! An archive has the same files for the check and for Helm.

use chandler_core::digest::Digest;
use chandler_e2e::world::{World, condition, config_value};
use chandler_sandbox::{
    hostile::archive::{self, entry, file},
    repository::ChartRepository,
};
use serde_json::json;

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\ndata: {a: b}\n";

/// Returns a packaged chart with a ConfigMap, and these further entries.
fn pack(name: &str, further: &[Vec<u8>]) -> Vec<u8> {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    let entries = [
        file(&format!("{name}/Chart.yaml"), metadata.as_bytes()),
        file(&format!("{name}/templates/a.yaml"), CONFIG_MAP.replace("NAME", name).as_bytes()),
    ];
    archive::pack(&[&entries[..], further].concat()).unwrap()
}

/// Starts a repository with this archive of the chart `web`.
async fn repository(world: &World, name: &str, archive: &[u8]) -> ChartRepository {
    let folder = world.dir.join(name);
    let repository = ChartRepository::start(world.sandbox.authority(), &folder).await.unwrap();
    let digest = Digest::of(archive);
    let index = format!(
        "apiVersion: v1\nentries:\n  web:\n  - {{name: web, version: 1.0.0, urls: [web-1.0.0.tgz], digest: '{}'}}\n",
        digest.hex()
    );
    std::fs::write(folder.join("web-1.0.0.tgz"), archive).unwrap();
    std::fs::write(folder.join("index.yaml"), index).unwrap();
    repository
}

/// For Go's reader, a directory has no content: what follows its header is the next entry. A reader that skips the content does not
/// see the subchart in it.
#[tokio::test]
async fn an_archive_that_hides_a_subchart_from_the_check_is_refused() {
    let world = World::new("hidden-subchart").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    let subchart = pack("hidden", &[]);
    let hidden = file("web/charts/hidden.tgz", &subchart);
    let attack = pack("web", &[entry(b'5', "web/charts/", &hidden)]);
    let hostile = repository(&world, "hostile", &attack).await;
    let plain = repository(&world, "plain", &pack("web", &[hidden])).await;
    world.apply_placement("attack", "web", json!({"repoURL": hostile.url()})).await;
    world.apply_placement("plain", "web", json!({"repoURL": plain.url()})).await;
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("plain", "alpha", 1).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(
        config_value(&alpha, "hidden", "a").await.as_deref(),
        Some("b"),
        "a visible subchart is installed"
    );
    let status = world
        .wait_status("attack", "alpha", "refused", |status| {
            condition(status, "Ready").is_some_and(|ready| ready.status == "False")
        })
        .await;
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(
        message.contains("a directory or link with content, which programs read differently"),
        "{message}"
    );
    assert_eq!(status.revision, None, "nothing of it is installed");
    manager.stop().await;
}
