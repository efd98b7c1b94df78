//! Children of an owner that is killed; the owner is this test binary run again for one test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chandler_sandbox::process::{Child, Identity, Spec, end_orphans};
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

fn recorded(home: &Path) -> Option<Identity> {
    let record = std::fs::read_to_string(home.join("run/sleeper")).ok()?;
    record.parse().ok()
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not seen in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Not a test of its own: what `children_of_a_killed_owner_end` kills.
#[tokio::test]
async fn owner() {
    let Some(home) = std::env::var_os(OWNER_FOLDER) else {
        return;
    };
    // A short-lived thread must not take the child with it.
    let home = PathBuf::from(home);
    let _child = std::thread::spawn(move || Child::spawn(&sleeper(&home)).unwrap()).join().unwrap();
    tokio::time::sleep(Duration::from_mins(10)).await;
}

#[tokio::test]
async fn children_of_a_killed_owner_end() {
    let home = testing::fresh_dir("owner").await.unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["tether::owner", "--exact"])
        .env(OWNER_FOLDER, &home)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let child = wait_for(|| recorded(&home));
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.is_running(), "the child outlives the thread that asked for it");

    owner.kill().unwrap();
    owner.wait().unwrap();

    assert!(child.wait_gone(Duration::from_secs(5)));
}

#[tokio::test]
async fn orphans_are_recognised_by_their_record() {
    let home = testing::fresh_dir("orphan").await.unwrap();
    let mut orphan = Command::new("sleep").arg("600").spawn().unwrap();
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let run = home.join("run");
    std::fs::create_dir_all(&run).unwrap();
    let identity = Identity::of(orphan.id()).unwrap();
    std::fs::write(run.join("sleeper"), identity.to_string()).unwrap();
    let of_stranger = Identity::of(stranger.id()).unwrap().to_string();
    let other_start = of_stranger.replacen(' ', " 1", 1);
    std::fs::write(run.join("stranger"), other_start).unwrap();

    assert_eq!(end_orphans(&home), 1);

    assert!(!identity.is_running());
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    orphan.wait().unwrap();
}

#[tokio::test]
async fn a_child_that_ends_early_is_reported_with_its_log() {
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
