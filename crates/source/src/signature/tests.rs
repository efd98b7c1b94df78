use serde_json::{Value, json};

use super::{testing::*, *};

const PERSON: &str = "release@example.com";

/// Spoils a signature before it is written down.
type Change = fn(&mut Made);

fn manifest() -> Digest {
    Digest::of("manifest")
}

/// Who is trusted: a key, and a person.
fn signers(town: &Town, key: &Key) -> Signers {
    let identities = vec![WantedIdentity {
        issuer: Some(ISSUER.to_owned()),
        subject: Some(PERSON.to_owned()),
        ..WantedIdentity::default()
    }];
    let trusted_root = Some(town.trusted_root());
    Signers::new(&SignersSpec { keys: vec![key.pem()], identities, trusted_root }).unwrap()
}

#[test]
fn both_forms_are_taken_from_a_key_and_from_a_person() {
    let (town, key) = (Town::new(), Key::new());
    let signers = signers(&town, &key);
    let made = [
        simple_by_key(&key, &manifest()),
        bundle_by_key(&key, &manifest()),
        town.simple(PERSON, &manifest(), |_| {}),
        town.bundle(PERSON, &manifest(), |_| {}),
    ];
    for found in made {
        assert_eq!(judge(std::slice::from_ref(&found), &manifest(), &signers), Ok(()), "{found:?}");
        let among = [simple_by_key(&Key::new(), &manifest()), found.clone()];
        assert_eq!(judge(&among, &manifest(), &signers), Ok(()), "one of several is enough");
        let other = judge(&[found], &Digest::of("other"), &signers);
        assert_eq!(other, Err(Refusal::OtherContent));
    }
}

#[test]
fn whoever_is_not_trusted_is_told() {
    let (town, key) = (Town::new(), Key::new());
    let signers = signers(&town, &key);
    let judged = |found: Found| judge(&[found], &manifest(), &signers).unwrap_err();
    assert_eq!(judge(&[], &manifest(), &signers), Err(Refusal::NoSignature));
    for found in [simple_by_key(&Key::new(), &manifest()), bundle_by_key(&Key::new(), &manifest())] {
        assert_eq!(judged(found), Refusal::OtherKey);
    }
    let other = Refusal::OtherIdentity { subject: "eve@example.com".to_owned(), issuer: ISSUER.to_owned() };
    assert_eq!(judged(town.simple("eve@example.com", &manifest(), |_| {})), other);
    assert_eq!(judged(town.bundle("eve@example.com", &manifest(), |_| {})), other);
    let elsewhere = Town::new();
    let strange = elsewhere.simple(PERSON, &manifest(), |_| {});
    assert!(matches!(judged(strange), Refusal::NotLogged(_)), "a log of another town");
    let mut liar = Town::new();
    liar.log = town.log.clone();
    let forged = liar.simple(PERSON, &manifest(), |_| {});
    assert!(matches!(judged(forged), Refusal::UntrustedCertificate(_)), "an authority of another town");
}

#[test]
fn an_entry_of_the_log_is_needed_and_has_to_be_about_the_signature() {
    let (town, key) = (Town::new(), Key::new());
    let signers = signers(&town, &key);
    let rows: [(&str, Change); 6] = [
        ("no entry", |made| made.entry = None),
        ("another time than was promised", |made| made.entry().time += 1),
        ("another index than was promised", |made| made.entry().index += 1),
        ("another body than was promised", |made| made.entry().body.push(b' ')),
        ("of another log", |made| made.entry().log[0] ^= 1),
        ("a promise that is none", |made| made.entry().promise[8] ^= 1),
    ];
    for (what, change) in rows {
        for found in [town.simple(PERSON, &manifest(), change), town.bundle(PERSON, &manifest(), change)] {
            let judged = judge(&[found], &manifest(), &signers);
            assert!(matches!(judged, Err(Refusal::NotLogged(_))), "{what}: {judged:?}");
        }
    }
    let borrowed = town.made(PERSON, &Digest::of("other"), Form::Simple);
    let mut own = town.made(PERSON, &manifest(), Form::Simple);
    own.entry = borrowed.entry;
    let judged = judge(&[own.found()], &manifest(), &signers);
    assert!(matches!(judged, Err(Refusal::NotLogged(_))), "the entry of another signature: {judged:?}");
}

#[test]
fn a_certificate_counts_in_its_minutes_only() {
    let (town, key) = (Town::new(), Key::new());
    let signers = signers(&town, &key);
    for (seconds, counts) in [(0, true), (599, true), (601, false), (-1, false)] {
        let late = town.simple(PERSON, &manifest(), |made| {
            let entry = made.entry();
            entry.time = entry.time.checked_add_signed(seconds).unwrap();
            town.promise(entry);
        });
        let judged = judge(&[late], &manifest(), &signers);
        assert_eq!(judged.is_ok(), counts, "{seconds}: {judged:?}");
    }
}

#[test]
fn identities_are_exact_or_expressions_for_the_whole_text() {
    let town = Town::new();
    let found = town.bundle(
        "https://github.com/acme/charts/.github/workflows/x.yaml@refs/tags/v1",
        &manifest(),
        |_| {},
    );
    let rows = [
        (Some(ISSUER), None, None, Some("https://github.com/acme/.*"), true),
        (None, Some(".*"), None, Some("https://github.com/acme/charts/.+@refs/tags/v[0-9]+"), true),
        (Some(ISSUER), None, None, Some("https://github.com/acme/"), false),
        (Some(ISSUER), None, None, Some("github.com/acme/.*|nothing"), false),
        (Some(ISSUER), None, Some("https://github.com/acme/charts"), None, false),
        (Some("https://other.example"), None, None, Some(".*"), false),
    ];
    for (issuer, issuer_reg_exp, subject, subject_reg_exp, counts) in rows {
        let [issuer, issuer_reg_exp, subject, subject_reg_exp] =
            [issuer, issuer_reg_exp, subject, subject_reg_exp].map(|text| text.map(str::to_owned));
        let wanted = WantedIdentity { issuer, issuer_reg_exp, subject, subject_reg_exp };
        let spec = SignersSpec {
            keys: vec![],
            identities: vec![wanted.clone()],
            trusted_root: Some(town.trusted_root()),
        };
        let judged = judge(std::slice::from_ref(&found), &manifest(), &Signers::new(&spec).unwrap());
        assert_eq!(judged.is_ok(), counts, "{wanted:?}: {judged:?}");
    }
}

#[test]
fn an_attestation_is_no_signature() {
    let key = Key::new();
    let (town, statement) = (Town::new(), statement(&manifest()));
    let signers = signers(&town, &key);
    let changes: [(&str, Value); 3] = [
        ("predicateType", json!("https://slsa.dev/provenance/v1")),
        ("subject", json!([])),
        ("subject", json!([{"digest": {"sha256": Digest::of("other").hex()}}])),
    ];
    for (field, value) in changes {
        let mut other = statement.clone();
        other[field] = value;
        let judged = judge(&[bundle_of(&key, &other)], &manifest(), &signers);
        assert_eq!(judged, Err(Refusal::OtherContent), "{other}");
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    let (town, key) = (Town::new(), Key::new());
    let signers = signers(&town, &key);
    let good = SimpleSignature {
        payload: payload(&manifest()),
        signature: "AAAA".to_owned(),
        certificate: None,
        bundle: None,
    };
    let rows = [
        Found::Simple(SimpleSignature { payload: b"{".to_vec(), ..good.clone() }),
        Found::Simple(SimpleSignature { signature: "?".to_owned(), ..good.clone() }),
        Found::Simple(SimpleSignature {
            certificate: Some("-----BEGIN CERTIFICATE-----".to_owned()),
            ..good.clone()
        }),
        Found::Bundle(Bundle(b"{}".to_vec())),
        Found::Bundle(Bundle(vec![0xff; 9])),
    ];
    for found in rows {
        let judged = judge(std::slice::from_ref(&found), &manifest(), &signers);
        assert!(matches!(judged, Err(Refusal::Unreadable(_))), "{found:?}: {judged:?}");
    }
    assert_eq!(judge(&[Found::Simple(good)], &manifest(), &signers), Err(Refusal::OtherKey));
}

#[test]
fn signers_that_nobody_can_be_held_against_are_told() {
    let town = Town::new();
    let person = WantedIdentity {
        issuer: Some(ISSUER.to_owned()),
        subject: Some(PERSON.to_owned()),
        ..WantedIdentity::default()
    };
    let with = |identity: &WantedIdentity, root: Option<&str>| SignersSpec {
        keys: vec![],
        identities: vec![identity.clone()],
        trusted_root: root.map(str::to_owned),
    };
    let root = town.trusted_root();
    let no_issuer = WantedIdentity { issuer: None, ..person.clone() };
    let both = WantedIdentity { subject_reg_exp: Some(".*".to_owned()), ..person.clone() };
    let broken =
        WantedIdentity { subject: None, subject_reg_exp: Some("a)|(b".to_owned()), ..person.clone() };
    let rows = [
        (SignersSpec::default(), "neither keys nor identities"),
        (with(&person, None), "trusted-root create"),
        (with(&person, Some("{}")), "no certificate authority"),
        (with(&person, Some("nonsense")), "no trusted root in JSON"),
        (with(&no_issuer, Some(&root)), "one of issuer and issuerRegExp"),
        (with(&both, Some(&root)), "one of subject and subjectRegExp"),
        (with(&broken, Some(&root)), "no regular expression"),
        (SignersSpec { keys: vec!["x".to_owned()], ..SignersSpec::default() }, "public key"),
    ];
    for (spec, hint) in rows {
        let why = Signers::new(&spec).unwrap_err().to_string();
        assert!(why.contains(hint), "{why}");
    }
}
