//! Digests of content and of release inputs.

use std::fmt;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::{
    identity::ReleaseId,
    release::{RenderingOptions, ValuesReuse},
};

/// The SHA-256 digest of some content, as `sha256:<hex>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    const PREFIX: &'static str = "sha256:";

    /// Computes the digest of `content`.
    pub fn of(content: impl AsRef<[u8]>) -> Self {
        Self::from_sha256(&Sha256::digest(content).into())
    }

    /// Wraps a hash that was computed elsewhere.
    pub fn from_sha256(hash: &[u8; 32]) -> Self {
        Self(format!("{}{}", Self::PREFIX, hex(hash)))
    }

    /// Parses `sha256:<64 hex digits>`, with or without the prefix (Helm indexes omit it).
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(Self::PREFIX).unwrap_or(text);
        let valid = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        valid.then(|| Self(format!("{}{}", Self::PREFIX, digits.to_ascii_lowercase())))
    }

    /// Returns the digest with its prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hexadecimal digits without the prefix.
    pub fn hex(&self) -> &str {
        &self.0[Self::PREFIX.len()..]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the first 64 bits of the SHA-256 digest of some texts.
pub fn short_hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    hash.finalize().iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Everything that determines the content of a release. Equal inputs need no operation.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// Digest of the package.
    pub package: &'a Digest,
    /// Digest of the canonical values.
    pub values: &'a Digest,
    /// Name and namespace.
    pub release: &'a ReleaseId,
    /// Options that affect rendering.
    pub rendering: &'a RenderingOptions,
    /// Kubernetes minor version of the cluster. Set only if the package's templates read it.
    pub kubernetes_minor: Option<&'a str>,
}

/// Digest of [`Inputs`], short enough for a label together with a revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InputDigest(String);

impl InputDigest {
    const LENGTH: usize = 40;

    /// Computes the digest of `inputs`.
    pub fn of(inputs: &Inputs<'_>) -> Self {
        /// The hashed JSON. A new field must be omitted at its default value, so that existing releases are not
        /// upgraded.
        #[derive(Serialize)]
        struct Hashed<'a> {
            package: &'a str,
            values: &'a str,
            namespace: &'a str,
            name: &'a str,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            disable_hooks: bool,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            skip_crds: bool,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            sub_notes: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            values_reuse: Option<&'static str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            kubernetes: Option<&'a str>,
        }
        let hashed = Hashed {
            package: inputs.package.as_str(),
            values: inputs.values.as_str(),
            namespace: &inputs.release.namespace,
            name: &inputs.release.name,
            disable_hooks: inputs.rendering.disable_hooks,
            skip_crds: inputs.rendering.skip_crds,
            sub_notes: inputs.rendering.sub_notes,
            values_reuse: match inputs.rendering.values_reuse {
                ValuesReuse::Reset => None,
                ValuesReuse::Reuse => Some("reuse"),
                ValuesReuse::ResetThenReuse => Some("reset-then-reuse"),
            },
            kubernetes: inputs.kubernetes_minor,
        };
        let json = serde_json::to_vec(&hashed).unwrap_or_default();
        Self(hex(&Sha256::digest(json))[..Self::LENGTH].to_owned())
    }

    /// Parses a digest from a label.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == Self::LENGTH && text.bytes().all(|b| b.is_ascii_hexdigit()))
            .then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InputDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The label on a release's stored revision: the digest of its inputs, and its number.
///
/// Helm copies labels to the next revision. A revision by another client is recognized because the numbers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputMark {
    pub digest: InputDigest,
    /// The revision that was created from the inputs.
    pub revision: u32,
}

impl InputMark {
    /// Key of the label on Helm's release Secret.
    pub const LABEL: &'static str = "chandler.dev/input";

    /// Parses `<digest>.<revision>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (digest, revision) = text.split_once('.')?;
        Some(Self { digest: InputDigest::parse(digest)?, revision: revision.parse().ok()? })
    }
}

impl fmt::Display for InputMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.digest, self.revision)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs<'a>(
        package: &'a Digest,
        values: &'a Digest,
        release: &'a ReleaseId,
        rendering: &'a RenderingOptions,
    ) -> Inputs<'a> {
        Inputs { package, values, release, rendering, kubernetes_minor: None }
    }

    #[test]
    fn the_digest_of_known_inputs_never_changes() {
        let (package, values) = (Digest::of("package"), Digest::of("{}"));
        let release = ReleaseId::new("default", "hello");
        let digest = InputDigest::of(&inputs(&package, &values, &release, &RenderingOptions::default()));
        assert_eq!(
            digest.as_str(),
            "62e5e340a372b341908fd09da5e21d3f10927ae2",
            "a new version of Chandler must not upgrade existing releases"
        );
    }

    #[test]
    fn each_input_changes_the_digest() {
        let (package, values, other) = (Digest::of("package"), Digest::of("{}"), Digest::of("other"));
        let (release, rendering) = (ReleaseId::new("default", "hello"), RenderingOptions::default());
        let base = inputs(&package, &values, &release, &rendering);
        let renamed = ReleaseId::new("default", "hello2");
        let hookless = RenderingOptions { disable_hooks: true, ..RenderingOptions::default() };
        let reusing = RenderingOptions { values_reuse: ValuesReuse::Reuse, ..RenderingOptions::default() };
        let all = [
            base.clone(),
            Inputs { package: &other, ..base.clone() },
            Inputs { values: &other, ..base.clone() },
            Inputs { release: &renamed, ..base.clone() },
            Inputs { rendering: &hookless, ..base.clone() },
            Inputs { rendering: &reusing, ..base.clone() },
            Inputs { kubernetes_minor: Some("1.34"), ..base.clone() },
        ];
        let digests: std::collections::HashSet<_> = all.iter().map(InputDigest::of).collect();
        assert_eq!(digests.len(), all.len());
    }

    #[test]
    fn a_mark_fits_a_label_and_round_trips() {
        let digest = InputDigest(Digest::of("x").hex()[..InputDigest::LENGTH].to_owned());
        let mark = InputMark { digest, revision: u32::MAX };
        let text = mark.to_string();
        assert!(text.len() <= 63, "{text}");
        assert_eq!(InputMark::parse(&text), Some(mark));
    }

    #[test]
    fn other_label_values_are_rejected() {
        for text in ["", "x", "abc.1", &format!("{}.x", "a".repeat(40)), &"a".repeat(40)] {
            assert_eq!(InputMark::parse(text), None, "{text}");
        }
    }

    #[test]
    fn digests_parse_with_and_without_prefix() {
        let digest = Digest::of("x");
        assert_eq!(Digest::parse(digest.hex()), Some(digest.clone()));
        assert_eq!(Digest::parse(digest.as_str()), Some(digest));
        assert_eq!(Digest::parse("sha256:short"), None);
    }
}
