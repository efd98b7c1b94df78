use serde_json::json;

use super::*;

const OWN: &str = "http://fleet.blue:secret@chandler-hub.chandler-system.svc:8132";
/// The authority of the management cluster.
const MANAGEMENT_CA: &str = "-----BEGIN CERTIFICATE-----\nT1RIRVI=\n-----END CERTIFICATE-----\n";
const CA: &str = "-----BEGIN CERTIFICATE-----\nQUJD\nREVG\n-----END CERTIFICATE-----\n";

/// A kubeconfig as Cluster API writes it, with more lines in its cluster entry.
fn kubeconfig(more: &str) -> String {
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n{more}    server: https://10.0.0.7:6443\n  \
         name: blue\ncontexts:\n- context:\n    cluster: blue\n    user: blue-admin\n  name: blue-admin@blue\n\
         current-context: blue-admin@blue\nkind: Config\nusers:\n- name: blue-admin\n  user:\n    \
         client-certificate-data: Y2VydA==\n    client-key-data: a2V5\n",
        BASE64_STANDARD.encode(CA)
    )
}

fn edit_with(text: &str, endpoint: &str, management_ca: &str) -> KubeconfigEdit {
    let cluster = ClusterKey::new("fleet", "blue");
    proxy_kubeconfig(text, &KubeconfigProxy { cluster: &cluster, endpoint, url: OWN, management_ca })
}

fn edit(text: &str) -> KubeconfigEdit {
    edit_with(text, "10.0.0.7:6443", MANAGEMENT_CA)
}

fn direct(text: &str) -> KubeconfigEdit {
    direct_kubeconfig(text, &ClusterKey::new("fleet", "blue"))
}

fn proxied(url: &str) -> String {
    kubeconfig(&format!("    proxy-url: \"{url}\"\n"))
}

#[test]
fn one_line_is_added_repaired_and_removed() {
    assert_eq!(edit(&kubeconfig("")), KubeconfigEdit::Change(proxied(OWN)));
    assert_eq!(edit(&proxied(OWN)), KubeconfigEdit::NoChange);
    assert_eq!(direct(&proxied(OWN)), KubeconfigEdit::Change(kubeconfig("")));
    assert_eq!(direct(&kubeconfig("")), KubeconfigEdit::NoChange);
    // A former password, and the hub of the installation that the Cluster was moved from.
    for stale in [
        "http://fleet.blue:old@chandler-hub.chandler-system.svc:8132",
        "http://fleet.blue:x@hub.other.svc:8132",
    ] {
        assert_eq!(edit(&proxied(stale)), KubeconfigEdit::Change(proxied(OWN)), "{stale}");
        assert_eq!(direct(&proxied(stale)), KubeconfigEdit::Change(kubeconfig("")), "{stale}");
    }
}

#[test]
fn an_empty_proxy_is_no_proxy() {
    assert_eq!(edit(&proxied("")), KubeconfigEdit::Change(proxied(OWN)));
    assert_eq!(direct(&proxied("")), KubeconfigEdit::NoChange);
}

#[test]
fn proxies_of_users_are_kept() {
    for other in
        ["http://proxy.example:3128", "http://user:pass@proxy.example:3128", "socks5://fleet.bluer@x:1"]
    {
        let refused = KubeconfigEdit::Refused(KubeconfigRefusal::OtherProxy);
        assert_eq!(edit(&proxied(other)), refused, "{other}");
        assert_eq!(direct(&proxied(other)), KubeconfigEdit::NoChange, "{other}");
    }
}

#[test]
fn only_the_entry_of_the_current_context_is_changed() {
    let other = |proxy: &str| {
        format!(
            "clusters:\n- cluster:\n{proxy}    server: https://10.0.0.7:6443\n  name: other\n- cluster:\n    cert"
        )
    };
    let with_other = |text: &str, proxy: &str| text.replace("clusters:\n- cluster:\n    cert", &other(proxy));
    for proxy in ["", "    proxy-url: http://fleet.blue:x@hub:1\n"] {
        let before = with_other(&kubeconfig(""), proxy);
        let after = with_other(&proxied(OWN), proxy);
        assert_eq!(edit(&before), KubeconfigEdit::Change(after.clone()));
        assert_eq!(direct(&after), KubeconfigEdit::Change(before));
    }
}

#[test]
fn other_styles_keep_their_content() {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "preferences": {"colors": true},
        "extensions": [{"name": "x", "extension": {"number": 7, "text": "yes"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "apps"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.7:6443"}}],
        "users": [{"name": "u", "user": {"token": "0123"}}],
    });
    let mut intended = config.clone();
    intended["clusters"][0]["cluster"]["proxy-url"] = OWN.into();
    for text in [config.to_string(), format!("{config:#}")] {
        let KubeconfigEdit::Change(changed) = edit(&text) else { panic!("{text}") };
        assert_eq!(edit::parse(&changed).unwrap(), intended);
        assert_eq!(edit(&changed), KubeconfigEdit::NoChange);
        let KubeconfigEdit::Change(back) = direct(&changed) else { panic!("{changed}") };
        assert_eq!(edit::parse(&back).unwrap(), config);
    }
}

#[test]
fn what_must_not_be_proxied_is_refused() {
    let insecure = kubeconfig("    insecure-skip-tls-verify: true\n");
    let without_context = kubeconfig("").replace("current-context: blue-admin@blue", "current-context: x");
    let twice =
        kubeconfig("").replace("contexts:", "- {name: blue, cluster: {server: 'https://x'}}\ncontexts:");
    let plain = kubeconfig("").replace("https://", "http://");
    let rows = [
        ("][".to_owned(), KubeconfigRefusal::Unreadable),
        ("text".to_owned(), KubeconfigRefusal::Unreadable),
        ("kind: Config".to_owned(), KubeconfigRefusal::NoCluster),
        (without_context, KubeconfigRefusal::NoCluster),
        (twice, KubeconfigRefusal::NoCluster),
        (plain, KubeconfigRefusal::NotHttps),
        (insecure, KubeconfigRefusal::Insecure),
    ];
    for (text, refusal) in rows {
        assert_eq!(edit(&text), KubeconfigEdit::Refused(refusal), "{text}");
    }
}

#[test]
fn the_server_must_be_the_endpoint_that_the_hub_connects_to() {
    let rows = [
        ("https://api.blue.example", "api.blue.example:443", true),
        ("https://API.blue.example:6443/", "api.blue.example:6443", true),
        ("https://[fd00::7]:6443", "[fd00::7]:6443", true),
        ("https://[fd00::7]", "[fd00::7]:443", true),
        ("https://10.0.0.8:6443", "10.0.0.7:6443", false),
        ("https://10.0.0.7:6443@evil.example:6443", "10.0.0.7:6443", false),
    ];
    for (server, endpoint, same) in rows {
        let text = kubeconfig("").replace("https://10.0.0.7:6443", server);
        let edit = edit_with(&text, endpoint, MANAGEMENT_CA);
        assert_eq!(matches!(edit, KubeconfigEdit::Change(_)), same, "{server} {edit:?}");
        let other = matches!(edit, KubeconfigEdit::Refused(KubeconfigRefusal::OtherServer { .. }));
        assert_eq!(other, !same, "{server} {edit:?}");
    }
}

#[test]
fn the_management_cluster_itself_is_refused() {
    let refused = KubeconfigEdit::Refused(KubeconfigRefusal::SelfHosted);
    let both = format!("{MANAGEMENT_CA}{}", CA.replace("\nREVG", "REVG"));
    assert_eq!(edit_with(&kubeconfig(""), "10.0.0.7:6443", &both), refused);
    assert!(matches!(edit(&kubeconfig("")), KubeconfigEdit::Change(_)));
    let in_cluster = kubeconfig("").replace("10.0.0.7:6443", "kubernetes.default.svc:443");
    assert_eq!(edit_with(&in_cluster, "kubernetes.default.svc:443", MANAGEMENT_CA), refused);
}

#[test]
fn debug_output_contains_no_secrets() {
    let edit = edit(&kubeconfig(""));
    assert_eq!(format!("{edit:?}"), "Change");
}

#[test]
fn the_client_certificate_of_the_current_user_is_found() {
    assert_eq!(client_certificate_pem(&kubeconfig("")).as_deref(), Some(b"cert".as_slice()));
    assert_eq!(client_certificate_pem("kind: Config"), None);
}
