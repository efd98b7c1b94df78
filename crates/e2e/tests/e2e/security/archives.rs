//! An archive has the same files for the check and for Helm.

use chandler_core::digest::Digest;
use chandler_e2e::world::{World, condition, config_value};
use chandler_sandbox::{
    hostile::archive::{self, entry, file},
    repository::ChartRepository,
};
use serde_json::json;

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\ndata: {a: b}\n";

fn metadata(name: &str) -> String {
    format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n")
}

/// Returns a packaged chart with a ConfigMap, and these further entries.
fn pack(name: &str, further: &[Vec<u8>]) -> Vec<u8> {
    let (template, config_map) = (format!("{name}/templates/a.yaml"), CONFIG_MAP.replace("NAME", name));
    let entries = [
        file(&format!("{name}/Chart.yaml"), metadata(name).as_bytes()),
        file(&template, config_map.as_bytes()),
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

/// Waits until a release is refused with a message that contains `text`, and checks that nothing of it is installed.
async fn assert_refused(world: &World, placement: &str, text: &str) {
    let status = world
        .wait_status(placement, "alpha", "refused", |status| {
            condition(status, "Ready").is_some_and(|ready| ready.status == "False")
        })
        .await;
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(message.contains(text), "{message}");
    assert_eq!(status.revision, None, "nothing of it is installed");
}

/// For Go's reader, a directory has no content: what follows its header is the next entry. A reader that skips the content does not
/// see the subchart in it. Charts in folders of charts cost Helm a list of all files for each level.
#[tokio::test]
async fn an_archive_that_hides_a_subchart_from_the_check_is_refused() {
    let world = World::new("hidden-subchart").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    let subchart = pack("hidden", &[]);
    let hidden = file("web/charts/hidden.tgz", &subchart);
    let attack = pack("web", &[entry(b'5', "web/charts/", &hidden)]);
    let hostile = repository(&world, "hostile", &attack).await;
    let level = |number| format!("web/{}Chart.yaml", "charts/a/".repeat(number));
    let levels: Vec<_> = (1..=9).map(|number| file(&level(number), metadata("a").as_bytes())).collect();
    let deep = repository(&world, "deep", &pack("web", &levels)).await;
    let plain = repository(&world, "plain", &pack("web", &[hidden])).await;
    for (name, url) in [("attack", hostile.url()), ("deep", deep.url()), ("plain", plain.url())] {
        world.apply_placement(name, "web", json!({"repoURL": url})).await;
    }
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("plain", "alpha", 1).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(
        config_value(&alpha, "hidden", "a").await.as_deref(),
        Some("b"),
        "a visible subchart is installed"
    );
    assert_refused(&world, "attack", "a directory or link with content, which programs read differently")
        .await;
    assert_refused(&world, "deep", "nests charts more than 8 levels deep").await;
    manager.stop().await;
}
