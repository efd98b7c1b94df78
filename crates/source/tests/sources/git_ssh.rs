//! Git repositories over ssh, served by `git upload-pack`.

use std::{sync::Arc, time::Duration};

use chandler_core::failure::Failure;
use chandler_sandbox::git_server::{
    WorkTree,
    ssh::{SshKey, SshServer, SshSettings},
};
use chandler_source::{
    Access, AddressPolicy, Credentials, GitCommit, GitLimits, Limits, Packages, ProxyMatcher, SourceOptions,
};
use serde_json::json;
use tokio::net::TcpListener;

use super::git::{fetch, message, texts};
use crate::support::env::{TestEnv, options};

async fn create_key(env: &TestEnv, name: &str, kind: &str, passphrase: &str) -> SshKey {
    SshKey::create(env.directory.path(), name, kind, passphrase).await.unwrap()
}

/// A server with the repository `fleet`, which has one commit.
struct Fixture {
    env: TestEnv,
    server: SshServer,
    settings: SshSettings,
    tree: WorkTree,
    host: SshKey,
    user: SshKey,
}

impl Fixture {
    async fn start() -> Self {
        let env = TestEnv::new();
        let host = create_key(&env, "host", "ed25519", "").await;
        let user = create_key(&env, "user", "ed25519", "").await;
        let settings = SshSettings::new(&env.path("served"), &host, &user);
        let server = SshServer::start(settings.clone()).await.unwrap();
        let tree = server.create("fleet").await.unwrap();
        tree.commit("first", &[("a.yaml", "a: 1\n")]).await.unwrap();
        Self { env, server, settings, tree, host, user }
    }

    /// Returns an access with a key, for a server with the host key.
    fn access(&self, identity: &str) -> Access {
        let known_hosts = self.server.known_hosts(&self.host);
        self.env.access_with(&[("identity", identity), ("known_hosts", &*known_hosts)])
    }

    async fn fetch(&self, access: &Access) -> Result<Arc<GitCommit>, Failure> {
        fetch(&self.packages(), &self.server.url("fleet"), access, &json!(null), &[]).await
    }

    fn packages(&self) -> Packages {
        self.packages_with(GitLimits::default())
    }

    fn packages_with(&self, git: GitLimits) -> Packages {
        let limits = Limits { git, ..options().limits };
        self.env.packages_with(SourceOptions { limits, ..options() })
    }
}

#[tokio::test]
async fn a_commit_is_fetched_with_one_connection() {
    let fixture = Fixture::start().await;
    let access = fixture.access(&fixture.user.private);
    let commit = fixture.fetch(&access).await.unwrap();
    assert_eq!(texts(&commit), [("a.yaml", "a: 1\n")]);
    assert_eq!(fixture.server.connections(), 2, "one for the refs, one for the commit");

    let noise: Vec<_> = (0..50_000_u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
    let noise = noise.concat();
    let second = fixture.tree.commit("second", &[("b.yaml", &noise)]).await.unwrap();
    let commit = fixture.fetch(&access).await.unwrap();
    assert_eq!((&commit.record.id, commit.tree.files["b.yaml"].len()), (&second, noise.len()));
    let packages = fixture.packages_with(GitLimits { pack_bytes: 50_000, ..GitLimits::default() });
    let refused = message(fetch(&packages, &fixture.server.url("fleet"), &access, &json!(null), &[]).await);
    assert!(refused.contains("is larger than the limit of 50000 bytes"), "{refused}");
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_not_used() {
    let fixture = Fixture::start().await;
    // Nothing listens there.
    let proxies = ProxyMatcher::builder().all("http://127.0.0.1:1").build();
    let packages = fixture.env.packages_with(SourceOptions { proxies, ..options() });
    let access = fixture.access(&fixture.user.private);
    fetch(&packages, &fixture.server.url("fleet"), &access, &json!(null), &[]).await.unwrap();
    assert_eq!(fixture.server.connections(), 2);
}

#[tokio::test]
async fn servers_without_protocol_version_2_are_read() {
    let fixture = Fixture::start().await;
    let settings = SshSettings { accepts_environment: false, ..fixture.settings.clone() };
    let server = SshServer::start(settings).await.unwrap();
    let known_hosts = server.known_hosts(&fixture.host);
    let secret = [("identity", &*fixture.user.private), ("known_hosts", &*known_hosts)];
    let (packages, access, url) = (fixture.packages(), fixture.env.access_with(&secret), server.url("fleet"));
    let commit = fetch(&packages, &url, &access, &json!({"branch": "main"}), &[]).await.unwrap();
    assert_eq!(texts(&commit), [("a.yaml", "a: 1\n")]);
}

#[tokio::test]
async fn a_server_that_opens_a_channel_is_refused() {
    let fixture = Fixture::start().await;
    let server =
        SshServer::start(SshSettings { opens_channel: true, ..fixture.settings.clone() }).await.unwrap();
    let known_hosts = server.known_hosts(&fixture.host);
    let secret = [("identity", &*fixture.user.private), ("known_hosts", &*known_hosts)];
    let (packages, access, url) = (fixture.packages(), fixture.env.access_with(&secret), server.url("fleet"));
    let refused = message(fetch(&packages, &url, &access, &json!({"branch": "main"}), &[]).await);
    assert!(refused.contains("the ssh server opened a channel"), "{refused}");
}

#[tokio::test]
async fn the_server_must_have_a_known_key() {
    let fixture = Fixture::start().await;
    let other = create_key(&fixture.env, "other", "ed25519", "").await;
    let offered = fixture.host.fingerprint();
    let unknown = format!("git.example {}", fixture.host.public);
    let (changed, revoked) = (
        fixture.server.known_hosts(&other),
        format!("{}@revoked * {}", fixture.server.known_hosts(&fixture.host), fixture.host.public),
    );
    let rows = [
        (&*unknown, "has no key for [127.0.0.1]:"),
        ("", "has no key for [127.0.0.1]:"),
        (&*changed, "Either the key has changed, or another server answers"),
        (&*revoked, "marks as revoked"),
    ];
    for (known_hosts, expected) in rows {
        let secret = [("identity", &*fixture.user.private), ("known_hosts", known_hosts)];
        let refused = message(fixture.fetch(&fixture.env.access_with(&secret)).await);
        assert!(refused.starts_with("SourceUnavailable") && refused.contains(expected), "{refused}");
        assert!(refused.contains(&offered), "{refused}");
    }
    let nonsense = [("identity", &*fixture.user.private), ("known_hosts", "nonsense")];
    let refused = message(fixture.fetch(&fixture.env.access_with(&nonsense)).await);
    assert!(refused.starts_with("InvalidSpec") && refused.contains("known_hosts has a line"), "{refused}");

    let missing = [("identity".to_owned(), fixture.user.private.clone().into_bytes())].into();
    let refused = Credentials::from_secret(missing, "config.json").err().unwrap().to_string();
    assert!(refused.contains("has identity but not known_hosts"), "{refused}");
    for access in [Access::default(), fixture.env.access_with(&[("bearerToken", "canary")])] {
        let refused = message(fixture.fetch(&access).await);
        assert!(refused.contains("must name a Secret with identity and known_hosts"), "{refused}");
    }
}

#[tokio::test]
async fn a_server_with_several_keys_offers_the_known_one() {
    let fixture = Fixture::start().await;
    let ecdsa = create_key(&fixture.env, "ecdsa", "ecdsa", "").await;
    let host_keys = vec![fixture.host.clone(), ecdsa.clone()];
    let server = SshServer::start(SshSettings { host_keys, ..fixture.settings.clone() }).await.unwrap();
    for known in [&fixture.host, &ecdsa] {
        let known_hosts = server.known_hosts(known);
        let secret = [("identity", &*fixture.user.private), ("known_hosts", &*known_hosts)];
        let access = fixture.env.access_with(&secret);
        fetch(&fixture.packages(), &server.url("fleet"), &access, &json!(null), &[]).await.unwrap();
    }
}

#[tokio::test]
async fn keys_that_the_server_does_not_accept_are_reported() {
    let fixture = Fixture::start().await;
    let other = create_key(&fixture.env, "other", "ecdsa", "").await;
    let refused = message(fixture.fetch(&fixture.access(&other.private)).await);
    let expected = format!("does not accept the key {} for user git", other.fingerprint());
    assert!(refused.starts_with("SourceUnavailable") && refused.contains(&expected), "{refused}");
    let rsa = create_key(&fixture.env, "rsa", "rsa", "").await;
    for identity in [&*rsa.private, "nonsense"] {
        let refused = message(fixture.fetch(&fixture.access(identity)).await);
        assert!(refused.contains("identity is not an ed25519 or ecdsa key"), "{refused}");
    }
}

#[tokio::test]
async fn encrypted_keys_need_their_passphrase() {
    let fixture = Fixture::start().await;
    let key = create_key(&fixture.env, "encrypted", "ed25519", "canary").await;
    let settings = SshSettings { authorized: key.clone(), ..fixture.settings.clone() };
    let server = SshServer::start(settings).await.unwrap();
    let known_hosts = server.known_hosts(&fixture.host);
    let packages = fixture.packages();
    let secret = [("identity", &*key.private), ("known_hosts", &*known_hosts)];
    let rows = [
        (vec![("password", "canary\n")], None),
        (vec![], Some("identity is encrypted; add its passphrase")),
        (vec![("password", "canary2")], Some("password is not the passphrase of identity")),
    ];
    for (password, expected) in rows {
        let access = fixture.env.access_with(&[&secret[..], &password[..]].concat());
        let fetched = fetch(&packages, &server.url("fleet"), &access, &json!(null), &[]).await;
        let Some(expected) = expected else {
            assert_eq!(texts(&fetched.unwrap()), [("a.yaml", "a: 1\n")]);
            continue;
        };
        let refused = message(fetched);
        assert!(refused.starts_with("InvalidSpec") && refused.contains(expected), "{refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_left_at_the_deadline() {
    let fixture = Fixture::start().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = tokio::spawn(async move {
        let mut connections = Vec::new();
        loop {
            connections.push(listener.accept().await.unwrap());
        }
    });
    let limits = Limits { total_timeout: Duration::from_millis(300), ..options().limits };
    let packages = fixture.env.packages_with(SourceOptions { limits, ..options() });
    let access = fixture.access(&fixture.user.private);
    let url = format!("ssh://git@{address}/fleet.git");
    let refused = message(fetch(&packages, &url, &access, &json!(null), &[]).await);
    assert!(refused.contains("did not send a complete response within 0.3 s"), "{refused}");
    let limits = Limits { connect_timeout: Duration::from_millis(200), ..options().limits };
    let packages = fixture.env.packages_with(SourceOptions { limits, ..options() });
    let refused = message(fetch(&packages, &url, &access, &json!(null), &[]).await);
    assert!(refused.contains("did not send a complete response within 0.2 s"), "{refused}");
    silent.abort();
}

#[tokio::test]
async fn refused_addresses_apply_to_names_and_literals() {
    let fixture = Fixture::start().await;
    let packages =
        fixture.env.packages_with(SourceOptions { addresses: AddressPolicy::default(), ..options() });
    let access = fixture.access(&fixture.user.private);
    let url = fixture.server.url("fleet");
    let port = fixture.server.address.port();
    let hosts = ["localhost", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]"];
    let others = hosts.map(|host| format!("ssh://git@{host}:{port}/fleet.git"));
    for url in others.iter().chain([&url]) {
        let refused = message(fetch(&packages, url, &access, &json!(null), &[]).await);
        assert!(refused.starts_with("InvalidSpec") && refused.contains("is not allowed"), "{url}: {refused}");
    }
    assert_eq!(fixture.server.connections(), 0);
}

#[tokio::test]
async fn other_addresses_and_missing_repositories_are_failures() {
    let fixture = Fixture::start().await;
    let (packages, access) = (fixture.packages(), fixture.access(&fixture.user.private));
    let refused = |url: String| {
        let (packages, access) = (&packages, &access);
        async move { message(fetch(packages, &url, access, &json!(null), &[]).await) }
    };
    let scp = refused("git@git.example:fleet.git".to_owned()).await;
    assert!(scp.starts_with("InvalidSpec") && scp.contains("ssh://git@git.example/fleet.git"), "{scp}");
    let missing = refused(fixture.server.url("missing")).await;
    assert!(missing.starts_with("SourceUnavailable"), "{missing}");
    assert!(missing.contains("the server ended the connection and wrote"), "{missing}");
    let url = fixture.server.url("fleet");
    let password = refused(url.replace("git@", "git:canary@")).await;
    assert!(password.contains("must not contain a password") && !password.contains("canary"), "{password}");
}
