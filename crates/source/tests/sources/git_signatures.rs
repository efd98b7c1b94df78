//! Signed commits and tags of Git repositories.

use std::{process::Command, sync::Arc, time::Duration};

use chandler_core::source::{VerificationMode, select_commit};
use chandler_sandbox::git_server::{GitServer, WorkTree};
use chandler_source::{GitCommit, GitKeys, GitRequest};
use serde_json::{Value, json};

use crate::support::env::TestEnv;

/// Creates an SSH key. Returns the path of the private key and the public key.
fn ssh_key(env: &TestEnv, name: &str) -> (String, String) {
    let path = env.path(name).to_string_lossy().into_owned();
    let arguments = ["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", &path];
    assert!(Command::new("ssh-keygen").args(arguments).status().unwrap().success());
    let public = std::fs::read_to_string(format!("{path}.pub")).unwrap();
    (path, public)
}

async fn sign_with(tree: &WorkTree, key: &str) {
    tree.git(&["config", "gpg.format", "ssh"]).await.unwrap();
    tree.git(&["config", "user.signingKey", key]).await.unwrap();
}

async fn fetch(env: &TestEnv, url: &str, reference: &Value) -> Arc<GitCommit> {
    let (packages, access) = (env.packages(), env.access());
    let refs = packages.git_refs(url, &access, Duration::ZERO, "team").await.unwrap();
    let git = serde_json::from_value(json!({"url": url, "ref": reference})).unwrap();
    let selected = select_commit(&git, &refs).unwrap();
    let request = GitRequest { namespace: "team", url, access: &access, selected: &selected, ignore: &[] };
    packages.git_commit(request).await.unwrap()
}

fn refusal(commit: &GitCommit, mode: VerificationMode, keys: &GitKeys) -> String {
    let failure = chandler_core::failure::Failure::from(commit.verify(mode, keys).unwrap_err());
    format!("{}: {}", failure.category, failure.message)
}

#[tokio::test]
async fn only_signatures_of_the_given_keys_count() {
    let env = TestEnv::new();
    let server = GitServer::start(&env.authority, &env.path("served")).await.unwrap();
    let tree = server.create("fleet").await.unwrap();
    let url = server.url("fleet");
    let ((private, public), (_, other)) = (ssh_key(&env, "anna"), ssh_key(&env, "eve"));
    let (keys, others) = (GitKeys::parse([&*public]).unwrap(), GitKeys::parse([&*other]).unwrap());
    sign_with(&tree, &private).await;

    tree.commit("unsigned", &[("a", "1")]).await.unwrap();
    let unsigned = fetch(&env, &url, &json!(null)).await;
    let refused = refusal(&unsigned, VerificationMode::Commit, &keys);
    assert!(refused.starts_with("VerificationFailed") && refused.contains("git commit -S"), "{refused}");
    let refused = refusal(&unsigned, VerificationMode::Tag, &keys);
    assert!(refused.contains("names no annotated tag"), "{refused}");

    tree.git(&["commit", "--quiet", "--allow-empty", "-S", "--message", "signed"]).await.unwrap();
    tree.git(&["tag", "--annotate", "--message", "unsigned", "v1.0.0"]).await.unwrap();
    tree.git(&["tag", "-s", "--message", "signed", "v1.1.0"]).await.unwrap();
    let object = tree.git(&["rev-parse", "v1.1.0"]).await.unwrap();
    tree.git(&["update-ref", "refs/tags/v9.0.0", &object]).await.unwrap();
    tree.push().await.unwrap();

    let signed = fetch(&env, &url, &json!({"tag": "v1.1.0"})).await;
    for mode in [VerificationMode::Commit, VerificationMode::Tag, VerificationMode::TagAndCommit] {
        let key = signed.verify(mode, &keys).unwrap();
        assert!(key.starts_with("anna (SHA256:"), "{mode:?}: {key}");
        let refused = refusal(&signed, mode, &others);
        assert!(refused.contains("which is none of the keys of spec.git.verify.keys"), "{mode:?}: {refused}");
    }
    let unsigned = fetch(&env, &url, &json!({"tag": "v1.0.0"})).await;
    assert!(unsigned.verify(VerificationMode::Commit, &keys).is_ok());
    let refused = refusal(&unsigned, VerificationMode::TagAndCommit, &keys);
    assert!(refused.contains("its tag has no signature"), "{refused}");
    let renamed = fetch(&env, &url, &json!({"semver": ">=9"})).await;
    let refused = refusal(&renamed, VerificationMode::Tag, &keys);
    assert!(refused.contains("the tag v9.0.0 contains a tag object with the name v1.1.0"), "{refused}");
}
