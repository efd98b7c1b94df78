//! Charts and value templates of one tenant that use all memory or CPU time end the process of their own namespace, and stop
//! their own release only. With `--tool-user`, these processes run as another user.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_e2e::{
    manager::Manager,
    programs,
    self_hosted::SelfHosted,
    wait::{eventually, eventually_within, until},
    world::condition,
};
use chandler_sandbox::{
    hostile,
    process::{Child, Spec},
    service_account, testing,
};
use k8s_openapi::api::{batch::v1::Job, events::v1::Event};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use super::tenants::Tenant;

/// Little memory and CPU time, so that attacks end soon.
const LIMITS: [&str; 4] = ["--memory-limit", "2048", "--tool-cpu-seconds", "2"];

/// Memory for two processes.
const FEW_PROCESSES: [&str; 4] = ["--memory-limit", "2048", "--tool-processes", "2"];

const TOOL_USER: [&str; 2] = ["--tool-user", "65534"];

/// Runs a program once the IDs of its user namespace are mapped, with the capabilities that docs/security.md names, and with an
/// additional group.
const RUN_ONCE_MAPPED: &str = "umask 022; until grep -q . /proc/self/gid_map; do sleep 0.1; done; \
    exec setpriv --pdeathsig KILL --groups 1 \
    --bounding-set -all,+chown,+dac_override,+kill,+setgid,+setuid,+sys_resource -- \"$@\"";

/// Installs the chart as a release with the name of the placement.
async fn apply(tenant: &Tenant<'_>, name: &str, values: &str) {
    tenant.apply_placement(name, &json!({"chartName": "balloon", "valuesTemplate": values})).await;
}

async fn release(tenant: &Tenant<'_>, name: &str) -> Option<HelmReleaseProxy> {
    tenant.release(name, "main").await
}

/// Installs the chart. Returns how long it takes until it is Ready.
async fn install(tenant: &Tenant<'_>, name: &str) -> Duration {
    let started = Instant::now();
    apply(tenant, name, "attack: none").await;
    wait_reason(tenant, name, "True", "Ready").await;
    started.elapsed()
}

/// Waits until Ready has this status and reason. Returns its message.
async fn wait_reason(tenant: &Tenant<'_>, name: &str, status: &str, reason: &str) -> String {
    let what = format!("{name} in {} is {status}, {reason}", tenant.namespace);
    eventually_within(Duration::from_mins(4), &what, || async {
        let release = release(tenant, name).await?;
        let current =
            release.status.filter(|status| status.observed_generation == release.metadata.generation)?;
        let ready = condition(&current, "Ready")?;
        (ready.status == status && ready.reason == reason).then(|| ready.message.clone())
    })
    .await
}

/// Returns the last failure: how often it has ended the process, and when.
async fn crashes(tenant: &Tenant<'_>, name: &str) -> (u32, Value) {
    let failure = release(tenant, name).await.unwrap().status.unwrap().last_failure.unwrap();
    (failure.crashes, json!(failure.at))
}

/// Returns the reasons of all warnings.
async fn warnings(tenant: &Tenant<'_>) -> Vec<String> {
    let events = tenant.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let warnings = events.into_iter().filter(|event| event.type_.as_deref() == Some("Warning"));
    warnings.filter_map(|event| event.reason).collect()
}

async fn publish_chart(test: &SelfHosted) {
    let folder = testing::fresh_dir("tool-processes-chart").await.unwrap().join("balloon");
    test.repository.publish(&hostile::chart::write_balloon(&folder).unwrap()).unwrap();
}

/// A value template that doubles a text 30 times is refused, and the process that evaluates templates goes on.
async fn refuse_template(red: &Tenant<'_>) {
    let doubling =
        "{{ $text := \"0123456789abcdef\" }}{{ range until 30 }}{{ $text = print $text $text }}{{ end }}";
    apply(red, "doubling", &format!("{doubling}attack: none")).await;
    let message = eventually("the value template is refused", || async {
        let status = red.api::<HelmChartProxy>().get("doubling").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|one| one.reason == "ValueParsingFailed")?;
        Some(ready.message)
    })
    .await;
    assert!(message.contains("MiB"), "{message}");
}

/// Hooks of two namespaces do not end. A third namespace gets a process although there is memory for two only.
async fn outlast_hooks(test: &SelfHosted, tenants: [&Tenant<'_>; 2]) {
    let green = Tenant::new(test, "green", &test.management.plane).await;
    let manager = Manager::from_process(test.management.start_manager_with(&FEW_PROCESSES));
    let hooks: Api<Job> = Api::namespaced(test.management.client.clone(), "default");
    for tenant in tenants {
        // No Pods run on this cluster.
        let name = format!("hook-{}", tenant.namespace);
        apply(tenant, &name, "attack: hook").await;
        eventually_within(Duration::from_mins(1), &format!("{name} runs"), || async {
            hooks.get_opt(&name).await.unwrap()
        })
        .await;
    }
    let took = install(&green, "beside").await;
    assert!(took < Duration::from_mins(1), "the hooks were not interrupted for it: {took:?}");
    for tenant in tenants {
        let release = release(tenant, &format!("hook-{}", tenant.namespace)).await.unwrap();
        let failure = release.status.and_then(|status| status.last_failure);
        assert!(failure.is_none(), "its hook is still waited for: {failure:?}");
    }
    manager.stop().await;
}

#[tokio::test]
async fn a_chart_that_uses_all_memory_or_cpu_time_stalls_its_own_release_only() {
    let test = SelfHosted::new("tool-processes").await;
    publish_chart(&test).await;
    let plane = &test.management.plane;
    let (red, blue) = (Tenant::new(&test, "red", plane).await, Tenant::new(&test, "blue", plane).await);
    let manager = Manager::from_process(test.management.start_manager_with(&LIMITS));
    let undisturbed = install(&blue, "before").await;

    apply(&red, "memory", "attack: memory").await;
    apply(&red, "cpu", "attack: cpu").await;
    apply(&red, "innocent", "attack: none").await;
    refuse_template(&red).await;
    for name in ["during-1", "during-2", "during-3"] {
        let disturbed = install(&blue, name).await;
        // The machine is busy with other tests, too.
        let limit = undisturbed * 3 + Duration::from_secs(10);
        assert!(disturbed < limit, "{name} took {disturbed:?}, and {undisturbed:?} before");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    wait_reason(&red, "innocent", "True", "Ready").await;
    let message = wait_reason(&red, "memory", "False", "Stalled").await;
    assert!(
        message.contains("more memory than its limit") && message.contains("chandler retry"),
        "{message}"
    );
    let message = wait_reason(&red, "cpu", "False", "Stalled").await;
    assert!(message.contains("more CPU time"), "{message}");
    assert!(manager.is_running(), "the manager has survived");
    assert_eq!(warnings(&blue).await, Vec::<String>::new(), "nothing has failed in the other namespace");

    // Another manager does not begin to count again.
    let stalled = crashes(&red, "memory").await;
    assert_eq!(stalled.0, 3);
    manager.stop().await;
    let manager = Manager::from_process(test.management.start_manager_with(&LIMITS));
    install(&blue, "after").await;
    install(&red, "later").await;
    assert_eq!(crashes(&red, "memory").await, stalled, "it is not tried again");

    // Other inputs are.
    apply(&red, "memory", "attack: none").await;
    wait_reason(&red, "memory", "True", "Ready").await;
    manager.stop().await;
    outlast_hooks(&test, [&red, &blue]).await;
}

/// Creates a folder that other users can reach, too.
async fn public_folder() -> PathBuf {
    let (folder, temporary) = (testing::fresh_dir("tool-user").await.unwrap(), std::env::temp_dir());
    for path in folder.ancestors() {
        if path.starts_with(&temporary) && path != temporary {
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        let mode = path.metadata().unwrap().permissions().mode();
        assert!(mode & 1 == 1, "other users cannot reach {}: set TMPDIR to another folder", path.display());
    }
    folder
}

/// Starts a manager whose package tools run as another user.
///
/// It is root in a user namespace of its own, where it can have all capabilities: root of a container may lack `SYS_RESOURCE`.
async fn start_with_tool_user(test: &SelfHosted) -> Manager {
    let home = public_folder().await;
    let path = |name: &str| home.join(name).to_string_lossy().into_owned();
    let [kubeconfig, store, temporary, tool] = ["kubeconfig", "store", "tmp", "chandler-helm"].map(path);
    let account =
        service_account::kubeconfig(&test.management.plane, "chandler-system", "chandler-manager").await;
    std::fs::write(&kubeconfig, account.unwrap()).unwrap();
    std::fs::set_permissions(&kubeconfig, Permissions::from_mode(0o600)).unwrap();
    // Another process copies the driver: what this one has open for writing, processes of other tests may inherit, and then it
    // cannot be run.
    for arguments in [["-d", "-m", "755", &temporary], ["-m", "755", programs::package_tool(), &tool]] {
        assert!(Command::new("install").args(arguments).status().unwrap().success(), "{arguments:?}");
    }
    let namespaced = ["--user", "--", "sh", "-c", RUN_ONCE_MAPPED, "sh", programs::chandler(), "manager"];
    let files = ["--kubeconfig", &kubeconfig, "--store", &store, "--tool", &tool];
    let others = ["--allow-address", "127.0.0.1", "--metrics-address", "127.0.0.1:0", "--log-format", "json"];
    let args = namespaced.iter().chain(&files).chain(&others).chain(&TOOL_USER);
    let spec = Spec {
        name: "manager".to_owned(),
        program: PathBuf::from("unshare"),
        args: args.map(|argument| (*argument).to_owned()).collect(),
        env: vec![("TMPDIR".to_owned(), temporary)],
        home,
    };
    let child = Child::spawn(&spec).unwrap();
    for name in ["uid_map", "gid_map"] {
        let map = format!("/proc/{}/{name}", child.pid());
        // It is refused until the process is in its namespace.
        until("the IDs of the user namespace are mapped", async || {
            child.check().unwrap();
            std::fs::write(&map, "0 0 65535\n").is_ok()
        })
        .await;
    }
    Manager::from_process(child)
}

/// Returns the users, the groups and the additional groups of a process. `None` means that it has exited.
fn users_and_groups(pid: u32) -> Option<[String; 3]> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(["Uid:", "Gid:", "Groups:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    }))
}

#[tokio::test]
async fn they_run_as_another_user_if_the_manager_is_root() {
    let test = SelfHosted::new("tool-user").await;
    if !rustix::process::geteuid().is_root() {
        let (succeeded, stderr) = test.management.run_manager_with(&TOOL_USER).await;
        assert!(!succeeded && stderr.contains("requires that the manager runs as root"), "{stderr}");
        return;
    }
    publish_chart(&test).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let manager = start_with_tool_user(&test).await;
    apply(&red, "templated", "attack: {{ print \"none\" }}").await;
    wait_reason(&red, "templated", "True", "Ready").await;

    // A process that is just being started is still a copy of the manager.
    let arguments = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let drivers = manager.driver_pids().into_iter().filter(|pid| arguments(*pid).contains("--socket"));
    let (templates, tools): (Vec<_>, Vec<_>) = drivers.partition(|pid| arguments(*pid).contains("--service"));
    assert!(!templates.is_empty() && !tools.is_empty(), "template service {templates:?}, tools {tools:?}");
    let (other, root) = ("65534 65534 65534 65534", "0 0 0 0");
    assert_eq!(users_and_groups(manager.pid()).unwrap(), [root, root, "1"]);
    for ids in templates.into_iter().chain(tools).filter_map(users_and_groups) {
        assert_eq!(ids, [other, other, ""]);
    }
    manager.stop().await;
}
