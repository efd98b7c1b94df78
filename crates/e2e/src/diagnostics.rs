//! Prints the state of a failed test, because it cannot be inspected afterwards in CI.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    panic,
    sync::Once,
    thread,
};

use chandler_sandbox::test_record::current_test;

use crate::world::World;

/// The beginnings of the names of logs that are printed.
const PRINTED: [&str; 3] = ["manager-", "hub-", "agent-"];
/// With this environment variable, a failed test keeps its clusters.
const KEEP_CLUSTERS: &str = "CHANDLER_KEEP_CLUSTERS";
/// The number of lines printed of each log.
const LAST_LINES: usize = 25;

/// Prints each failure at once, too: what a test prints is shown only when all tests have ended.
pub fn print_failures_at_once() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            now(&format!("{} failed: {info}", current_test()));
            default(info);
        }));
    });
}

/// Writes a line to standard error of the process, which is not captured.
fn now(text: &str) {
    // Errors are ignored: the test is already failing.
    let _ = writeln!(io::stderr(), "{text}");
}

pub fn print(world: &World) {
    let text = describe(world);
    println!("{text}");
    now(&text);
}

/// Keeps the clusters of a failed test until the process is interrupted, if the user wants to look at them.
pub fn keep_clusters(world: &World) {
    if env::var_os(KEEP_CLUSTERS).is_none() {
        return;
    }
    let management = world.sandbox.management();
    now(&format!(
        "{KEEP_CLUSTERS} is set, so the clusters of {} are kept until you press Ctrl-C.\n\
         Management cluster: export KUBECONFIG={}; namespace {}\nWorkload clusters: see {}\nLogs: {}",
        current_test(),
        management.kubeconfig_path().display(),
        world.namespace,
        management.dir().with_file_name("planes").display(),
        world.dir.join("logs").display(),
    ));
    loop {
        thread::park();
    }
}

/// Describes objects and the last lines of the logs.
fn describe(world: &World) -> String {
    let mut text = describe_objects(world);
    let logs = fs::read_dir(world.dir.join("logs")).into_iter().flatten().flatten();
    let is_printed = |name: &str| PRINTED.iter().any(|program| name.starts_with(program));
    for log in logs.filter(|log| is_printed(&log.file_name().to_string_lossy())) {
        let log_text = fs::read_to_string(log.path()).unwrap_or_default();
        let lines: Vec<_> = log_text.lines().collect();
        let _ = writeln!(text, "--- last lines of {}", log.file_name().to_string_lossy());
        for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn describe_objects(world: &World) -> String {
    let mut text = String::new();
    // Errors are ignored: the test is already failing.
    for object in world.reporting_objects().unwrap_or_default() {
        let metadata = &object["metadata"];
        let _ = writeln!(
            text,
            "--- {} {} generation {} annotations {}",
            object["kind"], metadata["name"], metadata["generation"], metadata["annotations"]
        );
        for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
            let _ = writeln!(
                text,
                "{}={} {} {}",
                condition["type"], condition["status"], condition["reason"], condition["message"]
            );
        }
    }
    text
}
