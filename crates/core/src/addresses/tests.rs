use serde::Deserialize;
use serde_json::json;

use super::*;

const VERIFIED: ServerCertificate = ServerCertificate::Verified;
const UNVERIFIED: ServerCertificate = ServerCertificate::Unverified;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    policy: Policy,
    #[serde(default)]
    unverified: bool,
    refused: Vec<IpAddr>,
    allowed: Vec<IpAddr>,
    /// Hosts that a proxy resolves.
    #[serde(default)]
    refused_hosts: Vec<String>,
    #[serde(default)]
    allowed_hosts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Policy {
    allowed: Vec<String>,
    refused: Vec<String>,
    refuse_private: bool,
    refuse_unverified: bool,
}

fn ranges(texts: &[String]) -> Vec<AddressRange> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn addresses_are_refused_in_every_notation() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases.json")).unwrap();
    for Case { name, policy, unverified, refused, allowed, refused_hosts, allowed_hosts } in cases {
        let policy = AddressPolicy {
            allowed: ranges(&policy.allowed),
            refused: ranges(&policy.refused),
            refuse_private: policy.refuse_private,
            refuse_unverified: policy.refuse_unverified,
            ..AddressPolicy::default()
        };
        let certificate = ServerCertificate::skipped(unverified);
        for address in refused {
            assert!(policy.check("host", address, certificate).is_err(), "{name}: {address} is allowed");
        }
        for address in allowed {
            assert_eq!(policy.check("host", address, certificate), Ok(()), "{name}");
        }
        for host in refused_hosts {
            assert!(policy.check_proxied_host(&host, certificate).is_err(), "{name}: {host} is allowed");
        }
        for host in allowed_hosts {
            assert_eq!(policy.check_proxied_host(&host, certificate), Ok(()), "{name}");
        }
    }
}

#[test]
fn ranges_are_parsed() {
    for (text, valid) in [("10.0.0.0/33", false), ("10.0.0.0/8", true), ("fd00::/8", true), ("host", false)] {
        assert_eq!(text.parse::<AddressRange>().is_ok(), valid, "{text}");
    }
}

#[test]
fn literal_hosts_are_checked_before_they_are_connected_to() {
    let policy = AddressPolicy { refuse_unverified: true, ..AddressPolicy::default() };
    // Host, direct, through a proxy, through a proxy without verification.
    let rows = [
        ("127.0.0.1", false, false, false),
        ("[::1]", false, false, false),
        ("169.254.169.254.", false, false, false),
        ("localhost", true, false, false),
        ("A.LOCALHOST.", true, false, false),
        ("127.1", true, false, false),
        ("example.com", true, true, false),
        ("93.184.216.34", true, true, false),
    ];
    for (host, direct, proxied, unverified) in rows {
        assert_eq!(policy.check_host(host, VERIFIED).is_ok(), direct, "{host}");
        assert_eq!(policy.check_proxied_host(host, VERIFIED).is_ok(), proxied, "{host}");
        assert_eq!(policy.check_proxied_host(host, UNVERIFIED).is_ok(), unverified, "{host}");
    }
}

#[test]
fn services_of_the_installation_are_trusted_by_name_and_port() {
    let trusted = vec!["chandler-hub.system.svc:8132".to_owned()];
    let policy = AddressPolicy { trusted, ..AddressPolicy::default() };
    assert!(policy.trusts("chandler-hub.system.svc", 8132));
    assert!(!policy.trusts("chandler-hub.system.svc", 443));
    assert!(!policy.trusts("evil.svc", 8132));
}

#[test]
fn error_messages_contain_the_flag_that_allows_the_address() {
    let address = "127.0.0.1".parse().unwrap();
    let error = AddressPolicy::default().check("localhost", address, VERIFIED).unwrap_err();
    assert_eq!(
        error.to_string(),
        "localhost is at 127.0.0.1, a loopback address; to allow it, start the manager with --allow-address 127.0.0.1"
    );
    let strict = AddressPolicy { refuse_unverified: true, ..AddressPolicy::default() };
    let public = "93.184.216.34".parse().unwrap();
    for error in [
        strict.check("example.com", public, UNVERIFIED).unwrap_err(),
        strict.check_proxied_host("example.com", UNVERIFIED).unwrap_err(),
        strict.check_certificate("example.com", UNVERIFIED).unwrap_err(),
    ] {
        assert!(error.to_string().ends_with("give Chandler the certificate authority instead"), "{error}");
    }
    let sources = AddressPolicy { flag: AllowFlag::SourceAddress, ..AddressPolicy::default() };
    let error = sources.check("localhost", address, VERIFIED).unwrap_err().to_string();
    assert!(error.ends_with("--allow-source-address 127.0.0.1"), "{error}");
    let error = sources.check_proxied_host("127.1", VERIFIED).unwrap_err().to_string();
    assert!(error.contains("127.1 is an address in an unusual notation"), "{error}");
}

#[test]
fn package_tools_get_the_policy_as_json() {
    let policy = AddressPolicy {
        allowed: ranges(&["127.0.0.1".to_owned(), "fd12::/16".to_owned()]),
        refuse_private: true,
        trusted: vec!["hub:1".to_owned()],
        ..AddressPolicy::default()
    };
    let (name, value) = policy.environment();
    assert_eq!(name, "CHANDLER_ADDRESS_POLICY");
    let expected = json!({
        "allowed": ["127.0.0.1/32", "fd12::/16"], "refused": [], "refusePrivate": true, "refuseUnverified": false,
        "trusted": ["hub:1"],
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&value).unwrap(), expected);
}
