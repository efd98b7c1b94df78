//! Git repositories over https, served by `git http-backend`.

use std::{sync::Arc, time::Duration};

use chandler_core::{
    failure::Failure,
    source::{SelectedRevision, select_commit},
};
use chandler_sandbox::{
    git_server::{GitServer, WorkTree},
    repository::Authentication,
};
use chandler_source::{
    Access, GitCommit, GitLimits, GitRequest, Limits, Packages, SourceOptions, TreeLimits,
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::env::{TestEnv, options};

async fn start(env: &TestEnv) -> (GitServer, WorkTree) {
    let server = GitServer::start(&env.authority, &env.path("served")).await.unwrap();
    let tree = server.create("fleet").await.unwrap();
    (server, tree)
}

/// Lists the refs, selects a commit by `spec.git.ref`, and fetches it.
pub(super) async fn fetch(
    packages: &Packages,
    url: &str,
    access: &Access,
    reference: &Value,
    ignore: &[&str],
) -> Result<Arc<GitCommit>, Failure> {
    let git = serde_json::from_value(json!({"url": url, "ref": reference})).unwrap();
    let refs = packages.git_refs(url, access, Duration::ZERO, "team").await?;
    let selected = select_commit(&git, &refs)?;
    let ignore: Vec<_> = ignore.iter().map(|pattern| (*pattern).to_owned()).collect();
    Ok(packages
        .git_commit(GitRequest { namespace: "team", url, access, selected: &selected, ignore: &ignore })
        .await?)
}

/// Returns the paths and texts of a commit.
pub(super) fn texts(commit: &GitCommit) -> Vec<(&str, &str)> {
    let files = commit.tree.files.iter();
    files.map(|(path, content)| (path.as_str(), std::str::from_utf8(content).unwrap())).collect()
}

pub(super) fn message(result: Result<Arc<GitCommit>, Failure>) -> String {
    let failure = result.unwrap_err();
    format!("{}: {}", failure.category, failure.message)
}

#[tokio::test]
async fn branches_tags_ranges_and_commits_are_fetched() {
    let env = TestEnv::new();
    let (server, tree) = start(&env).await;
    let (packages, access, url) = (env.packages(), env.access(), server.url("fleet"));
    let first = tree.commit("first", &[("a.yaml", "a: 1\n"), ("apps/b.yaml", "b: 1\n")]).await.unwrap();
    tree.git(&["tag", "v1.0.0"]).await.unwrap();
    let second = tree.commit("second\n\nwith a body", &[("a.yaml", "a: 2\n")]).await.unwrap();
    tree.git(&["tag", "--annotate", "--message", "a release", "v1.1.0"]).await.unwrap();
    tree.git(&["checkout", "--quiet", "-b", "feature/x"]).await.unwrap();
    let third = tree.commit("third", &[("apps/c.yaml", "c: 1\n")]).await.unwrap();

    let rows = [
        (json!(null), &second),
        (json!({"branch": "main"}), &second),
        (json!({"branch": "feature/x"}), &third),
        (json!({"tag": "v1.0.0"}), &first),
        (json!({"tag": "v1.1.0"}), &second),
        (json!({"semver": "1.x"}), &second),
        (json!({"semver": "~1.0"}), &first),
        (json!({"commit": first}), &first),
    ];
    for (reference, expected) in rows {
        let commit = fetch(&packages, &url, &access, &reference, &[]).await.unwrap();
        assert_eq!((&commit.record.id, &commit.tree.revision), (expected, expected), "{reference}");
    }
    let commit = fetch(&packages, &url, &access, &json!({"tag": "v1.1.0"}), &[]).await.unwrap();
    assert_eq!(texts(&commit), [("a.yaml", "a: 2\n"), ("apps/b.yaml", "b: 1\n")]);
    assert_eq!((&*commit.record.author, &*commit.record.subject), ("Anna <anna@example.com>", "second"));
    assert!(commit.record.time.is_some() && commit.remarks.is_empty());

    let before = commit.tree.below("apps").unwrap().digest();
    tree.git(&["checkout", "--quiet", "main"]).await.unwrap();
    let next = tree.commit("outside of apps", &[("a.yaml", "a: 3\n")]).await.unwrap();
    let commit = fetch(&packages, &url, &access, &json!(null), &[]).await.unwrap();
    assert_eq!(commit.record.id, next, "a push is a new revision");
    assert_eq!(commit.tree.below("apps").unwrap().digest(), before, "the folder has not changed");

    let missing = "0123456789012345678901234567890123456789";
    let refused = message(fetch(&packages, &url, &access, &json!({"commit": missing}), &[]).await);
    assert!(refused.starts_with("SourceUnavailable"), "{refused}");
}

#[tokio::test]
async fn an_empty_and_a_missing_repository_are_failures() {
    let env = TestEnv::new();
    let (server, _tree) = start(&env).await;
    let (packages, access) = (env.packages(), env.access());
    let empty = message(fetch(&packages, &server.url("fleet"), &access, &json!(null), &[]).await);
    assert!(empty.starts_with("PackageNotFound") && empty.contains("has no default branch"), "{empty}");
    let missing = message(fetch(&packages, &server.url("other"), &access, &json!(null), &[]).await);
    assert!(missing.contains("HTTP 404: the repository does not exist"), "{missing}");
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    let env = TestEnv::new();
    let guards = [
        Authentication::Basic { user: "git".to_owned(), password: "canary".to_owned() },
        Authentication::Bearer("canary".to_owned()),
    ];
    for (index, guard) in guards.into_iter().enumerate() {
        let folder = env.path(&format!("served-{index}"));
        let server = GitServer::start_with_authentication(&env.authority, &folder, guard).await.unwrap();
        let tree = server.create(&format!("fleet-{index}")).await.unwrap();
        tree.commit("first", &[("a", "1")]).await.unwrap();
        let url = server.url(&format!("fleet-{index}"));
        let access = match index {
            0 => env.access_with(&[("username", "git"), ("password", "canary")]),
            _ => env.access_with(&[("bearerToken", "canary")]),
        };
        fetch(&env.packages(), &url, &access, &json!(null), &[]).await.unwrap();
        for refused in [env.access(), env.access_with(&[("username", "git"), ("password", "canary2")])] {
            let message = message(fetch(&env.packages(), &url, &refused, &json!(null), &[]).await);
            assert!(message.contains("HTTP 401: the repository needs credentials"), "{message}");
            assert!(!message.contains("canary"), "{message}");
        }
    }
}

#[tokio::test]
async fn the_server_is_verified_and_its_address_is_checked() {
    let env = TestEnv::new();
    let (server, tree) = start(&env).await;
    tree.commit("first", &[("a", "1")]).await.unwrap();
    let url = server.url("fleet");
    let untrusted = message(fetch(&env.packages(), &url, &Access::default(), &json!(null), &[]).await);
    assert!(untrusted.starts_with("SourceUnavailable"), "{untrusted}");
    let strict = SourceOptions { addresses: chandler_source::AddressPolicy::default(), ..options() };
    let packages = env.packages_with(strict);
    let refused = message(fetch(&packages, &url, &env.access(), &json!(null), &[]).await);
    assert!(refused.starts_with("InvalidSpec") && refused.contains("is not allowed"), "{refused}");
    for url in [url.replace("https", "http"), url.replace("https://", "https://git:canary@")] {
        let refused = message(fetch(&env.packages(), &url, &env.access(), &json!(null), &[]).await);
        assert!(refused.starts_with("InvalidSpec") && !refused.contains("canary"), "{refused}");
    }
}

#[tokio::test]
async fn limits_hold() {
    let env = TestEnv::new();
    let (server, tree) = start(&env).await;
    let noise: Vec<_> = (0..20_000_u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
    let noise = noise.concat();
    tree.commit("first", &[("a/b/c/d", "1"), ("big", &noise)]).await.unwrap();
    let (url, access) = (server.url("fleet"), env.access());
    let (git, tree) = (GitLimits::default(), TreeLimits::default());
    let rows = [
        (GitLimits { refs_bytes: 10, ..git }, tree, "is larger than the limit of 10 bytes"),
        (GitLimits { pack_bytes: 1000, ..git }, tree, "is larger than the limit of 1000 bytes"),
        (
            git,
            TreeLimits { bytes: 10_000, ..tree },
            "have more than 10000 bytes; add large folders to spec.ignore",
        ),
        (git, TreeLimits { entries: 3, ..tree }, "it has more than 3 files and folders"),
        (git, TreeLimits { depth: 2, ..tree }, "a/b/c is nested more than 2 folders deep"),
    ];
    for (git, tree, expected) in rows {
        let limits = Limits { git, tree, ..options().limits };
        let packages = env.packages_with(SourceOptions { limits, ..options() });
        let refused = message(fetch(&packages, &url, &access, &json!(null), &[]).await);
        assert!(refused.contains(expected), "{refused}");
    }
    let limits = Limits { tree: TreeLimits { bytes: 10_000, ..tree }, ..options().limits };
    let packages = env.packages_with(SourceOptions { limits, ..options() });
    let commit = fetch(&packages, &url, &access, &json!(null), &["big"]).await.unwrap();
    assert_eq!(texts(&commit), [("a/b/c/d", "1")], "what is left out does not count");
}

#[tokio::test]
async fn submodules_and_lfs_are_refused_and_links_are_left_out() {
    let env = TestEnv::new();
    let (server, tree) = start(&env).await;
    let (packages, access, url) = (env.packages(), env.access(), server.url("fleet"));
    std::os::unix::fs::symlink("/etc/passwd", tree.path().join("link")).unwrap();
    let first = tree.commit("first", &[("a", "1")]).await.unwrap();
    let commit = fetch(&packages, &url, &access, &json!(null), &[]).await.unwrap();
    assert_eq!(texts(&commit), [("a", "1")]);
    assert_eq!(commit.remarks, "the symbolic link link is left out");

    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    tree.commit("large", &[("model.bin", pointer)]).await.unwrap();
    let refused = message(fetch(&packages, &url, &access, &json!(null), &[]).await);
    assert!(
        refused.starts_with("InvalidPackage") && refused.contains("model.bin is stored in Git LFS"),
        "{refused}"
    );
    fetch(&packages, &url, &access, &json!(null), &["*.bin"]).await.unwrap();

    tree.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{first},modules/x")]).await.unwrap();
    tree.git(&["commit", "--quiet", "--message", "a submodule"]).await.unwrap();
    tree.push().await.unwrap();
    let refused = message(fetch(&packages, &url, &access, &json!(null), &["*.bin"]).await);
    assert!(refused.contains("modules/x is a submodule, which is not supported"), "{refused}");
    fetch(&packages, &url, &access, &json!(null), &["*.bin", "modules"]).await.unwrap();
}

#[tokio::test]
async fn callers_share_requests() {
    let env = TestEnv::new();
    let (server, tree) = start(&env).await;
    tree.commit("first", &[("a", "1")]).await.unwrap();
    let (packages, access, url) = (env.packages(), env.access(), server.url("fleet"));
    let lists = (0..50).map(|_| packages.git_refs(&url, &access, Duration::from_mins(1), "team"));
    let lists = join_all(lists).await;
    assert!(lists.iter().all(|listed| listed.as_ref().is_ok_and(|refs| !refs.0.is_empty())));
    assert_eq!(server.requests()["ls-refs"], 1);
    let commit = lists[0].as_ref().unwrap().0[0].commit.clone();
    let selected = SelectedRevision { id: commit, tag: None };
    let request =
        GitRequest { namespace: "team", url: &url, access: &access, selected: &selected, ignore: &[] };
    let commits = join_all((0..50).map(|_| packages.git_commit(request))).await;
    assert!(commits.iter().all(Result::is_ok));
    assert_eq!(server.requests()["fetch"], 1);
}
