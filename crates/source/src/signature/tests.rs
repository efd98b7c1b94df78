use serde_json::{Value, json};

use super::{testing::*, *};

const SUBJECT: &str = "release@example.com";

/// Changes a signature before it is serialized.
type Change = fn(&mut TestSignature);

fn manifest() -> Digest {
    Digest::of("manifest")
}

/// Trusts a key and an identity.
fn signers(sigstore: &TestSigstore, key: &Key) -> Signers {
    let identities = vec![ExpectedIdentity {
        issuer: Some(ISSUER.to_owned()),
        subject: Some(SUBJECT.to_owned()),
        ..ExpectedIdentity::default()
    }];
    let trusted_root = Some(sigstore.trusted_root());
    Signers::new(&SignersSpec { keys: vec![key.pem()], identities, trusted_root }).unwrap()
}

#[test]
fn both_formats_are_accepted_from_a_key_and_from_an_identity() {
    let (sigstore, key) = (TestSigstore::new(), Key::new());
    let signers = signers(&sigstore, &key);
    let signatures = [
        simple_by_key(&key, &manifest()),
        bundle_by_key(&key, &manifest()),
        sigstore.simple(SUBJECT, &manifest(), |_| {}),
        sigstore.bundle(SUBJECT, &manifest(), |_| {}),
    ];
    for signature in signatures {
        assert_eq!(verify(std::slice::from_ref(&signature), &manifest(), &signers), Ok(()), "{signature:?}");
        let several = [simple_by_key(&Key::new(), &manifest()), signature.clone()];
        assert_eq!(verify(&several, &manifest(), &signers), Ok(()), "one of several is enough");
        let other = verify(&[signature], &Digest::of("other"), &signers);
        assert_eq!(other, Err(VerificationError::WrongContent));
    }
}

#[test]
fn untrusted_signers_are_rejected() {
    let (sigstore, key) = (TestSigstore::new(), Key::new());
    let signers = signers(&sigstore, &key);
    let error = |signature: Signature| verify(&[signature], &manifest(), &signers).unwrap_err();
    assert_eq!(verify(&[], &manifest(), &signers), Err(VerificationError::NoSignature));
    for signature in [simple_by_key(&Key::new(), &manifest()), bundle_by_key(&Key::new(), &manifest())] {
        assert_eq!(error(signature), VerificationError::UntrustedKey);
    }
    let other = VerificationError::UntrustedIdentity {
        subject: "eve@example.com".to_owned(),
        issuer: ISSUER.to_owned(),
    };
    assert_eq!(error(sigstore.simple("eve@example.com", &manifest(), |_| {})), other);
    assert_eq!(error(sigstore.bundle("eve@example.com", &manifest(), |_| {})), other);
    let foreign = TestSigstore::new().simple(SUBJECT, &manifest(), |_| {});
    assert!(matches!(error(foreign), VerificationError::NotLogged(_)), "a log of another Sigstore");
    let mut forger = TestSigstore::new();
    forger.log = sigstore.log.clone();
    let signature = forger.simple(SUBJECT, &manifest(), |_| {});
    assert!(
        matches!(error(signature), VerificationError::UntrustedCertificate(_)),
        "an authority of another Sigstore"
    );
}

#[test]
fn a_log_entry_for_the_signature_is_required() {
    let (sigstore, key) = (TestSigstore::new(), Key::new());
    let signers = signers(&sigstore, &key);
    let rows: [(&str, Change); 6] = [
        ("no entry", |signature| signature.entry = None),
        ("changed time", |signature| signature.entry().time += 1),
        ("changed index", |signature| signature.entry().index += 1),
        ("changed body", |signature| signature.entry().body.push(b' ')),
        ("another log", |signature| signature.entry().log_id[0] ^= 1),
        ("invalid signature of the log", |signature| signature.entry().signed_entry_timestamp[8] ^= 1),
    ];
    for (what, change) in rows {
        let signatures =
            [sigstore.simple(SUBJECT, &manifest(), change), sigstore.bundle(SUBJECT, &manifest(), change)];
        for signature in signatures {
            let result = verify(&[signature], &manifest(), &signers);
            assert!(matches!(result, Err(VerificationError::NotLogged(_))), "{what}: {result:?}");
        }
    }
    let other = sigstore.sign(SUBJECT, &Digest::of("other"), Format::Simple);
    let mut signature = sigstore.sign(SUBJECT, &manifest(), Format::Simple);
    signature.entry = other.entry;
    let result = verify(&[signature.serialize()], &manifest(), &signers);
    assert!(
        matches!(result, Err(VerificationError::NotLogged(_))),
        "the entry of another signature: {result:?}"
    );
}

#[test]
fn signing_time_has_to_be_within_the_validity_of_the_certificate() {
    let (sigstore, key) = (TestSigstore::new(), Key::new());
    let signers = signers(&sigstore, &key);
    for (seconds, valid) in [(0, true), (599, true), (601, false), (-1, false)] {
        let signature = sigstore.simple(SUBJECT, &manifest(), |signature| {
            let entry = signature.entry();
            entry.time = entry.time.checked_add_signed(seconds).unwrap();
            sigstore.sign_entry(entry);
        });
        let result = verify(&[signature], &manifest(), &signers);
        assert_eq!(result.is_ok(), valid, "{seconds}: {result:?}");
    }
}

#[test]
fn identities_match_exactly_or_by_an_expression_for_the_whole_text() {
    let sigstore = TestSigstore::new();
    let signature = sigstore.bundle(
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
    for (issuer, issuer_reg_exp, subject, subject_reg_exp, valid) in rows {
        let [issuer, issuer_reg_exp, subject, subject_reg_exp] =
            [issuer, issuer_reg_exp, subject, subject_reg_exp].map(|text| text.map(str::to_owned));
        let identity = ExpectedIdentity { issuer, issuer_reg_exp, subject, subject_reg_exp };
        let spec = SignersSpec {
            keys: vec![],
            identities: vec![identity.clone()],
            trusted_root: Some(sigstore.trusted_root()),
        };
        let result = verify(std::slice::from_ref(&signature), &manifest(), &Signers::new(&spec).unwrap());
        assert_eq!(result.is_ok(), valid, "{identity:?}: {result:?}");
    }
}

#[test]
fn attestations_are_not_accepted_as_signatures() {
    let key = Key::new();
    let (sigstore, statement) = (TestSigstore::new(), statement(&manifest()));
    let signers = signers(&sigstore, &key);
    let changes: [(&str, Value); 3] = [
        ("predicateType", json!("https://slsa.dev/provenance/v1")),
        ("subject", json!([])),
        ("subject", json!([{"digest": {"sha256": Digest::of("other").hex()}}])),
    ];
    for (field, value) in changes {
        let mut other = statement.clone();
        other[field] = value;
        let result = verify(&[bundle_of(&key, &other)], &manifest(), &signers);
        assert_eq!(result, Err(VerificationError::WrongContent), "{other}");
    }
}

#[test]
fn invalid_signatures_are_rejected() {
    let (sigstore, key) = (TestSigstore::new(), Key::new());
    let signers = signers(&sigstore, &key);
    let valid = SimpleSignature {
        payload: payload(&manifest()),
        signature: "AAAA".to_owned(),
        certificate: None,
        bundle: None,
    };
    let rows = [
        Signature::Simple(SimpleSignature { payload: b"{".to_vec(), ..valid.clone() }),
        Signature::Simple(SimpleSignature { signature: "?".to_owned(), ..valid.clone() }),
        Signature::Simple(SimpleSignature {
            certificate: Some("-----BEGIN CERTIFICATE-----".to_owned()),
            ..valid.clone()
        }),
        Signature::Bundle(Bundle(b"{}".to_vec())),
        Signature::Bundle(Bundle(vec![0xff; 9])),
    ];
    for signature in rows {
        let result = verify(std::slice::from_ref(&signature), &manifest(), &signers);
        assert!(matches!(result, Err(VerificationError::Invalid(_))), "{signature:?}: {result:?}");
    }
    assert_eq!(
        verify(&[Signature::Simple(valid)], &manifest(), &signers),
        Err(VerificationError::UntrustedKey)
    );
}

#[test]
fn invalid_signers_are_rejected() {
    let sigstore = TestSigstore::new();
    let identity = ExpectedIdentity {
        issuer: Some(ISSUER.to_owned()),
        subject: Some(SUBJECT.to_owned()),
        ..ExpectedIdentity::default()
    };
    let with = |identity: &ExpectedIdentity, root: Option<&str>| SignersSpec {
        keys: vec![],
        identities: vec![identity.clone()],
        trusted_root: root.map(str::to_owned),
    };
    let root = sigstore.trusted_root();
    let no_issuer = ExpectedIdentity { issuer: None, ..identity.clone() };
    let both = ExpectedIdentity { subject_reg_exp: Some(".*".to_owned()), ..identity.clone() };
    let broken =
        ExpectedIdentity { subject: None, subject_reg_exp: Some("a)|(b".to_owned()), ..identity.clone() };
    let rows = [
        (SignersSpec::default(), "neither keys nor identities"),
        (with(&identity, None), "trusted-root create"),
        (with(&identity, Some("{}")), "no certificate authority"),
        (with(&identity, Some("nonsense")), "not a trusted root in JSON"),
        (with(&no_issuer, Some(&root)), "one of issuer and issuerRegExp"),
        (with(&both, Some(&root)), "one of subject and subjectRegExp"),
        (with(&broken, Some(&root)), "not a regular expression"),
        (SignersSpec { keys: vec!["x".to_owned()], ..SignersSpec::default() }, "public key"),
    ];
    for (spec, text) in rows {
        let error = Signers::new(&spec).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}
