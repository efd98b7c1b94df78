//! Child processes whose owner is killed. The owner is this test binary, started again to run the test `owner`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chandler_sandbox::process::{Child, Identity, Spec, terminate_orphans};
use chandler_sandbox::testing;

const OWNER_FOLDER: &str = "CHANDLER_TEST_OWNER_FOLDER";

fn sleeper(home: &Path) -> Spec {
    Spec {
        name: "sleeper".to_owned(),
        program: PathBuf::from("sleep"),
        args: vec!["600".to_owned()],
        env: Vec::new(),
        home: home.to_owned(),
    }
}

fn read_pid_file(home: &Path) -> Option<Identity> {
    let text = std::fs::read_to_string(home.join("run/sleeper")).ok()?;
    text.parse().ok()
}

fn wait_for<T>(mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Not a test: the process that `children_of_a_killed_owner_are_killed` kills.
#[tokio::test]
async fn owner() {
    let Some(home) = std::env::var_os(OWNER_FOLDER) else {
        return;
    };
    // The child must survive the end of the thread that spawned it.
    let home = PathBuf::from(home);
    let _child = std::thread::spawn(move || Child::spawn(&sleeper(&home)).unwrap()).join().unwrap();
    tokio::time::sleep(Duration::from_mins(10)).await;
}

#[tokio::test]
async fn children_of_a_killed_owner_are_killed() {
    let home = testing::fresh_dir("owner").await.unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["processes::owner", "--exact"])
        .env(OWNER_FOLDER, &home)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let child = wait_for(|| read_pid_file(&home));
    // Before, it is `setpriv`, which may not have set the signal yet.
    let comm = format!("/proc/{}/comm", child.pid());
    wait_for(|| std::fs::read_to_string(&comm).ok().filter(|name| name == "sleep\n"));
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.is_running(), "the child must survive the thread that spawned it");

    owner.kill().unwrap();
    owner.wait().unwrap();

    assert!(child.wait_exited(Duration::from_secs(20)));
}

#[tokio::test]
async fn orphans_are_identified_by_their_pid_file() {
    let home = testing::fresh_dir("orphan").await.unwrap();
    let mut orphan = Command::new("sleep").arg("600").spawn().unwrap();
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let run = home.join("run");
    std::fs::create_dir_all(&run).unwrap();
    let identity = Identity::of(orphan.id()).unwrap();
    std::fs::write(run.join("sleeper"), identity.to_string()).unwrap();
    let other_identity = Identity::of(other.id()).unwrap().to_string();
    let with_other_start_time = other_identity.replacen(' ', " 1", 1);
    std::fs::write(run.join("other"), with_other_start_time).unwrap();

    assert_eq!(terminate_orphans(&home), 1);

    assert!(!identity.is_running());
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
    orphan.wait().unwrap();
}

#[tokio::test]
async fn the_error_of_an_exited_child_contains_its_log() {
    let home = testing::fresh_dir("early").await.unwrap();
    let spec = Spec {
        program: PathBuf::from("sh"),
        args: vec!["-c".to_owned(), "echo what went wrong >&2; exit 3".to_owned()],
        ..sleeper(&home)
    };
    let child = Child::spawn(&spec).unwrap();
    let error = wait_for(|| child.check().err());
    assert!(error.to_string().contains("what went wrong"), "{error}");
}
