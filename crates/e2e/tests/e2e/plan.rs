//! `chandler plan` and `chandler diff`: what they show on real clusters, and that they change nothing.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_api::extensions::{ExtensionInstance, POLICY_ANNOTATION};
use chandler_e2e::{extension_world::ExtensionWorld, programs, terminal::OnTerminal, world::World};
use chandler_sandbox::{chart, plane::Plane, requests::AuditEntry};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const GUIDE: &str = include_str!("../../../../docs/guides/planning-changes.md");
const BEFORE: &str = "canary-before";
const AFTER: &str = "canary-after";

/// Publishes a chart with a ConfigMap and a Secret.
fn publish_chart(world: &World) {
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n\
                  data:\n  greeting: {{ .Values.greeting }}\n";
    let login = "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}-login}\n\
                 data:\n  password: {{ .Values.password | b64enc }}\n  user: {{ \"admin\" | b64enc }}\n";
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: login\nversion: 1.0.0\n"),
        ("values.yaml", "greeting: Hello\npassword: none\n"),
        ("templates/config.yaml", config),
        ("templates/login.yaml", login),
    ];
    world.repository.publish(&chart::write(&world.dir.join("login"), &files).unwrap()).unwrap();
}

fn values(greeting: &str, password: &str) -> Value {
    json!({"valuesTemplate": format!("greeting: {greeting}\npassword: {password}\n")})
}

/// A user with a folder of files.
struct User<'a> {
    world: &'a World,
    folder: PathBuf,
}

/// What a command has printed, and its exit code.
struct Printed {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Printed {
    /// Checks the exit code, and that no output contains a password.
    fn expect(self, code: i32, what: &str) -> String {
        let Self { code: found, stdout, stderr } = self;
        assert_eq!(found, code, "{what}: {stdout}{stderr}");
        for secret in [BEFORE, AFTER] {
            for text in [secret.to_owned(), BASE64_STANDARD.encode(secret)] {
                assert!(!format!("{stdout}{stderr}").contains(&text), "{what} shows a password");
            }
        }
        stdout
    }
}

impl<'a> User<'a> {
    fn new(world: &'a World) -> Self {
        let folder = world.dir.join("files");
        std::fs::create_dir_all(folder.join("addons/team")).unwrap();
        Self { world, folder }
    }

    /// Writes the stored HelmChartProxy `hello` with other fields of its spec.
    async fn write(&self, fields: Value) {
        let stored = self.world.placements().get("hello").await.unwrap();
        let mut spec = serde_json::to_value(&stored.spec).unwrap();
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": "hello", "namespace": self.world.namespace}, "spec": spec,
        });
        for file in ["hello.yaml", "addons/team/hello.json"] {
            std::fs::write(self.folder.join(file), object.to_string()).unwrap();
        }
    }

    /// Writes `policy.yaml`: the stored HelmChartProxy `hello` with other fields of its spec, and a policy for it.
    async fn write_with_policy(&self, policy: Value, fields: Value) {
        let metadata = |name: &str| json!({"name": name, "namespace": self.world.namespace});
        let policy = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonPolicy", "metadata": metadata("values"), "spec": policy,
        });
        let mut placement = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "metadata": metadata("hello"),
            "spec": self.world.placements().get("hello").await.unwrap().spec,
        });
        placement["metadata"]["annotations"] = json!({POLICY_ANNOTATION: "values"});
        placement["spec"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        std::fs::write(self.folder.join("policy.yaml"), format!("{policy}\n---\n{placement}\n")).unwrap();
    }

    /// Returns the command for a line, in the folder.
    fn command(&self, line: &str) -> Command {
        let world = self.world;
        let line = line.replace("--namespace fleet", &format!("--namespace {}", world.namespace));
        let line = line.replacen("chandler", programs::chandler(), 1);
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(&self.folder);
        command.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
        command.env("XDG_CACHE_HOME", world.dir.join("cache"));
        command.env("CHANDLER_ALLOW_ADDRESS", "127.0.0.1");
        command.env("CHANDLER_TOOL", programs::package_tool());
        command
    }

    /// Runs a command line on a terminal. Returns what it shows, without the world's own names.
    async fn show(&self, line: &str) -> String {
        let terminal = OnTerminal::spawn(self.command(line));
        let (code, shown) = tokio::task::spawn_blocking(move || terminal.wait()).await.unwrap();
        let shown = Printed { code, stdout: shown, stderr: String::new() }.expect(1, line);
        shown.replace(&self.world.namespace, "fleet").replace('\u{1b}', "ESC")
    }

    /// Runs a command line.
    async fn run(&self, line: &str) -> Printed {
        let mut command = self.command(line);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Printed {
            code: output.status.code().unwrap(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// Plans `hello.yaml` with other fields of the stored spec.
    async fn plan(&self, fields: Value, code: i32) -> String {
        let what = fields.to_string();
        self.write(fields).await;
        self.run("chandler plan -f hello.yaml").await.expect(code, &what)
    }
}

/// Compares an output with a file in `golden/`. With `CHANDLER_UPDATE_GOLDEN`, writes the file instead.
fn assert_golden(name: &str, found: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/golden").join(name);
    if std::env::var_os("CHANDLER_UPDATE_GOLDEN").is_some() {
        std::fs::write(file, found).unwrap();
    } else {
        assert_eq!(found, std::fs::read_to_string(file).unwrap(), "{name}");
    }
}

/// Returns the requests of Chandler and its driver that may change something.
fn writes(entries: Vec<AuditEntry>) -> Vec<(String, String)> {
    let ours = entries.into_iter().filter(AuditEntry::is_from_chandler);
    let writes = ours.filter(|entry| !["get", "list", "watch"].contains(&entry.verb.as_str()));
    writes.map(|entry| (entry.verb, entry.resource)).collect()
}

/// Makes a cluster unreachable for all clients that read its kubeconfig.
async fn disconnect(world: &World, plane: &Plane) {
    let kubeconfig = plane.kubeconfig().replace(&format!(":{}", plane.port()), ":1");
    let patch = Patch::Merge(json!({"stringData": {"value": kubeconfig}}));
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let name = format!("{}-kubeconfig", plane.name());
    secrets.patch(&name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_plan_shows_what_a_file_would_change_on_each_cluster() {
    let world = World::new("plan").await;
    publish_chart(&world);
    let (alpha, bravo) = (world.create_cluster("alpha").await, world.create_cluster("bravo").await);
    let manager = world.start_manager();
    world.apply_placement("hello", "login", values("Hello", BEFORE)).await;
    for cluster in ["alpha", "bravo"] {
        world.wait_ready("hello", cluster, 1).await;
    }
    manager.wait_idle().await;
    manager.stop().await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"tier": "canary"}}}));
    world.clusters().patch("bravo", &PatchParams::default(), &label).await.unwrap();
    let version = world.placements().get("hello").await.unwrap().resource_version();
    let mut audit = alpha.audit_log();
    let user = User::new(&world);

    assert_changes_are_shown(&user).await;
    assert_other_actions_are_shown(&user).await;
    assert_values_of_a_policy_are_planned(&user).await;
    assert_holds_are_shown(&user).await;
    assert_eq!(world.placements().get("hello").await.unwrap().resource_version(), version);
    assert_stored_objects_are_compared(&user).await;
    user.write(values("Goodbye", AFTER)).await;
    assert_guide_commands_work(&user).await;

    assert_eq!(writes(audit.read().unwrap()), [], "a plan writes nothing on clusters");
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
    assert_eq!(world.releases_of("hello").await.len(), 2);

    disconnect(&world, &bravo).await;
    let text = user.plan(values("Goodbye", AFTER), 2).await;
    assert!(text.contains("alpha: upgrade default/hello 1.0.0") && text.contains("bravo: error: "), "{text}");
    assert!(text.ends_with("1 to upgrade, 0 to replace, 0 to remove, 0 unchanged, 1 failed.\n"), "{text}");

    // The finalizer keeps the placement, because no manager runs.
    world.placements().delete("hello", &DeleteParams::default()).await.unwrap();
    let text = user.run("chandler diff hcp/hello --cluster alpha --namespace fleet").await;
    let text = text.expect(1, "diff of a placement that is being deleted");
    assert!(text.contains("alpha: remove (Uninstall) default/hello 1.0.0\n"), "{text}");
}

async fn assert_changes_are_shown(user: &User<'_>) {
    let text = user.plan(json!({}), 0).await;
    for expected in ["alpha: unchanged default/hello 1.0.0\n", "bravo: unchanged", "2 unchanged.\n"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = user.plan(values("Goodbye", AFTER), 1).await;
    for expected in ["alpha: upgrade default/hello 1.0.0\n", "bravo: upgrade default/hello 1.0.0\n"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    for expected in ["\n-  greeting: Hello\n+  greeting: Goodbye\n", "\n+  password: <masked, changed>\n"] {
        assert_eq!(text.matches(expected).count(), 2, "{expected}: {text}");
    }
    assert_golden("plan.txt", &user.show("chandler plan -f hello.yaml").await);
    assert_golden("plan-summary.txt", &user.show("chandler plan -f hello.yaml --summary").await);
    let json = user.run("chandler plan -f hello.yaml -o json").await.expect(1, "json");
    assert_golden("plan.json", &json.replace(&user.world.namespace, "fleet"));
    let plan: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(plan["summary"]["upgrade"], 2);
    let objects = plan["objects"][0]["clusters"][0]["objects"].as_array().unwrap().clone();
    let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ConfigMap", "Secret"]);
    let closed = user.run("chandler plan -f hello.yaml | true").await;
    assert_eq!(closed.stderr, "", "the reader of the plan has ended");
    let yaml = user.run("chandler plan -f - --summary -o yaml < hello.yaml").await.expect(1, "yaml");
    let plan: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(plan["objects"][0]["clusters"][1]["objects"][0]["diff"], Value::Null, "{yaml}");
}

async fn assert_other_actions_are_shown(user: &User<'_>) {
    let selector = json!({"clusterSelector": {"matchLabels": {"fleet": "test", "tier": "canary"}}});
    let text = user.plan(selector, 1).await;
    assert!(text.contains("alpha: remove (Uninstall) default/hello 1.0.0\n"), "{text}");
    assert!(text.contains("\n--- ConfigMap default/hello\n+++ /dev/null\n"), "{text}");
    assert!(text.contains("bravo: unchanged"), "{text}");
    let text = user.plan(json!({"releaseName": "renamed"}), 1).await;
    let expected =
        "alpha: replace default/renamed 1.0.0 (release default/hello would be uninstalled first)\n";
    assert!(text.contains(expected), "{text}");
    let text = user.plan(json!({"valuesTemplate": "greeting: [\n"}), 2).await;
    assert!(text.contains("alpha: error: ") && text.contains("bravo: error: "), "{text}");
    let text = user.plan(json!({"chartName": "no-such-chart"}), 2).await;
    assert!(text.contains("alpha: error: ") && text.contains("no-such-chart"), "{text}");
    let text = user.plan(json!({"chartname": "typing-error"}), 2).await;
    assert!(
        text.contains("error: the API server does not accept it") && text.contains("chartname"),
        "{text}"
    );
    let missing = user.run("chandler plan -f missing.yaml").await;
    assert!(missing.stderr.contains("missing.yaml"), "{}", missing.stderr);
    missing.expect(2, "missing.yaml");
}

async fn assert_values_of_a_policy_are_planned(user: &User<'_>) {
    let world = user.world;
    let metadata = |name: &str| json!({"name": name, "namespace": world.namespace});
    let source = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata("source"),
        "stringData": {"greeting": "Good evening"},
    });
    world.apply(&source).await;
    let from = json!([{"secret": {"name": "source", "key": "greeting"}, "parameter": "greeting"}]);
    let template = json!({"valuesTemplate": format!("password: {BEFORE}\n")});
    user.write_with_policy(json!({"valuesFrom": from}), template).await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let before = secrets.list_metadata(&ListParams::default()).await.unwrap().items.len();
    let text = user.run("chandler plan -f policy.yaml").await.expect(1, "values of a policy");
    assert_eq!(text.matches("\n-  greeting: Hello\n+  greeting: <masked>\n").count(), 2, "{text}");
    assert!(!text.contains("Good evening"), "{text}");
    let text = user.run("chandler plan -f policy.yaml --show-secret-values").await.expect(1, "shown values");
    assert_eq!(text.matches("\n-  greeting: Hello\n+  greeting: Good evening\n").count(), 2, "{text}");
    let after = secrets.list_metadata(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(before, after, "a plan writes no Secret with values");
}

/// Operations that the manager would not start are shown with the reason, and removals with what they leave behind.
async fn assert_holds_are_shown(user: &User<'_>) {
    let world = user.world;
    let missing = json!({"dependsOn": [{"kind": "HelmChartProxy", "name": "cni"}]});
    let canary = json!({"clusterSelector": {"matchLabels": {"fleet": "test", "tier": "canary"}}});
    let rows = [
        (
            missing,
            values("Goodbye", AFTER),
            "alpha: upgrade default/hello 1.0.0 (held: waiting for HelmChartProxy cni, which does not exist",
        ),
        (
            json!({"suspend": true}),
            values("Goodbye", AFTER),
            "alpha: upgrade default/hello 1.0.0 (held: release default/hello is suspended",
        ),
        (
            json!({"onUnselect": "Orphan"}),
            canary,
            "alpha: remove (Orphan) default/hello 1.0.0 (the release would stay on the cluster)",
        ),
    ];
    for (policy, fields, expected) in rows {
        user.write_with_policy(policy.clone(), fields).await;
        let text = user.run("chandler plan -f policy.yaml").await.expect(1, &policy.to_string());
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let mut spec = serde_json::to_value(world.placements().get("hello").await.unwrap().spec).unwrap();
    let mut other = |name: &str, release: &str| {
        spec["releaseName"] = release.into();
        json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": name, "namespace": world.namespace}, "spec": spec,
        })
    };
    let objects = [other("taken", "hello"), other("first", "fresh"), other("second", "fresh")];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(user.folder.join("others.json"), list.to_string()).unwrap();
    let text = user.run("chandler plan -f others.json --summary").await.expect(1, "collisions");
    let held: Vec<_> =
        text.lines().filter(|line| line.contains("already belongs to HelmReleaseProxy")).collect();
    assert_eq!(held.len(), 4, "`taken` and `second` on two clusters: {text}");
}

async fn assert_stored_objects_are_compared(user: &User<'_>) {
    let world = user.world;
    let diff = |object: &str| format!("chandler diff {object} --namespace fleet");
    user.run(&diff("hcp/hello")).await.expect(0, "diff");
    let before = world.placements().get("hello").await.unwrap();
    world.patch_placement("hello", values("Goodbye", AFTER)).await;
    let text = user.run(&diff("helmchartproxy hello")).await.expect(1, "diff of a changed placement");
    assert_eq!(text.matches("+  greeting: Goodbye").count(), 2, "{text}");
    let text = user.run(&diff("hcp/hello --cluster bravo")).await.expect(1, "diff of one cluster");
    assert_eq!(text.matches("+  greeting: Goodbye").count(), 1, "{text}");
    // The manager does not run, so the release object has not changed.
    let release = world.release("hello", "alpha").await.unwrap().name_any();
    let text = user.run(&diff(&format!("hrp/{release}"))).await.expect(0, "diff of a release object");
    assert!(text.contains("alpha: unchanged default/hello 1.0.0"), "{text}");
    let unselected =
        user.run(&diff("hcp/hello --cluster unknown")).await.expect(2, "diff of an unknown cluster");
    assert!(unselected.contains("does not select Cluster unknown"), "{unselected}");
    let unknown = user.run(&diff("hcp/unknown")).await;
    assert!(unknown.stderr.contains("unknown"), "{}", unknown.stderr);
    unknown.expect(2, "diff of an unknown object");
    world.patch_placement("hello", serde_json::to_value(&before.spec).unwrap()).await;
}

async fn assert_guide_commands_work(user: &User<'_>) {
    let commands: Vec<_> = GUIDE.lines().filter(|line| line.starts_with("chandler ")).collect();
    assert!(commands.len() >= 4, "{commands:?}");
    for line in commands {
        let printed = user.run(line).await;
        assert!(printed.code <= 1, "`{line}`: {}{}", printed.stdout, printed.stderr);
        assert!(printed.stderr.is_empty(), "`{line}`: {}", printed.stderr);
    }
}

#[tokio::test]
async fn a_plan_of_an_instance_shows_the_version_that_would_be_chosen() {
    let test = ExtensionWorld::new("plan-instance").await;
    let world = &test.world;
    let alpha = world.create_cluster("alpha").await;
    let versions = ["1.0.0", "1.1.0"].map(|version| json!({"version": version, "kubernetes": "*"}));
    test.apply_extension("hello", json!(versions), json!({})).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "parameters", "namespace": world.namespace},
        "stringData": {"greeting": "Good morning"},
    });
    world.apply(&secret).await;
    let manager = world.start_manager();
    test.apply_instance("hello", "hello", json!({"version": "1.0.x"})).await;
    test.wait_ready("hello", "alpha", "1.0.0").await;
    manager.wait_idle().await;
    manager.stop().await;
    let stored = test.instances().get("hello").await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let before = secrets.list_metadata(&ListParams::default()).await.unwrap().items.len();
    let user = User::new(world);
    let from = json!([{"secret": {"name": "parameters", "key": "greeting"}, "parameter": "greeting"}]);
    let rows = [
        (json!({}), 0, "alpha: unchanged default/hello 1.0.0", ""),
        (json!({"version": "1.1.x"}), 1, "alpha: upgrade default/hello 1.0.0 -> 1.1.0", ""),
        (json!({"parametersFrom": from}), 1, "alpha: upgrade default/hello 1.0.0", "+  greeting: <masked>"),
        (json!({"version": "3.x"}), 2, "alpha: error: ", ""),
    ];
    for (fields, code, line, diff) in rows {
        let mut spec = serde_json::to_value(&stored.spec).unwrap();
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": "hello", "namespace": world.namespace}, "spec": spec,
        });
        std::fs::write(user.folder.join("instance.yaml"), object.to_string()).unwrap();
        let printed = user.run("chandler plan -f instance.yaml").await.expect(code, &fields.to_string());
        assert!(printed.contains(line) && printed.contains(diff), "{fields}: {printed}");
    }
    user.run("chandler diff exti/hello --namespace fleet").await.expect(0, "diff");
    assert_catalogs_and_extensions_of_files_are_planned(&user, &stored).await;
    let after = secrets.list_metadata(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(before, after, "a plan writes no Secret with values");
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
}

/// No manager has read the catalogs into the cache of the user, and none knows the objects of the files.
async fn assert_catalogs_and_extensions_of_files_are_planned(user: &User<'_>, stored: &ExtensionInstance) {
    let world = user.world;
    let object = |kind: &str, name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": world.namespace});
        json!({"apiVersion": "chandler.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let authority = json!({"name": "ca", "key": "ca.crt"});
    let catalog = object(
        "ExtensionCatalog",
        "planned",
        json!({"url": world.repository.url(), "certificateAuthority": authority}),
    );
    let instance = |catalog: &str| {
        let spec = json!({
            "extension": {"name": "hello", "catalog": catalog}, "version": "1.1.x", "clusters": {"name": "alpha"},
            "release": {"name": "direct", "namespace": "default"},
        });
        object("ExtensionInstance", "direct", spec)
    };
    let version = json!({"version": "1.0.0", "kubernetes": "*", "source": {"catalog": {"name": "charts"}, "chart": "hello"}});
    let extension = object("Extension", "hello", json!({"versions": [version]}));
    let mut follower = serde_json::to_value(&stored.spec).unwrap();
    follower["version"] = json!("1.1.x");
    let follower = object("ExtensionInstance", "hello", follower);
    let sync = object("Sync", "hello", json!({"sourceRef": {"name": "hello"}}));
    let rows = [
        ("a stored catalog", vec![instance("charts")], 1, "alpha: install default/direct 1.1.0"),
        (
            "a catalog of the files",
            vec![catalog, instance("planned")],
            1,
            "alpha: install default/direct 1.1.0",
        ),
        ("a stored Extension", vec![follower.clone()], 1, "alpha: upgrade default/hello 1.0.0 -> 1.1.0"),
        (
            "an Extension of the files",
            vec![extension, follower.clone()],
            2,
            "alpha: error: 1.0.0 stays although the request cannot be satisfied",
        ),
        (
            "another object of Chandler",
            vec![sync, follower],
            2,
            "alpha: upgrade default/hello 1.0.0 -> 1.1.0",
        ),
    ];
    for (what, objects, code, line) in rows {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(user.folder.join("list.yaml"), list.to_string()).unwrap();
        let printed = user.run("chandler plan -f list.yaml").await.expect(code, what);
        assert!(printed.contains(line), "{what}: {printed}");
    }
}
