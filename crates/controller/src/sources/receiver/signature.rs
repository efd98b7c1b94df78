//! Proves that the sender of a webhook knows a secret. Comparisons take the same time for every wrong value.

use http::{HeaderMap, HeaderValue};
use ring::hmac;

/// How a header proves that the sender knows the secret.
#[derive(Clone, Copy)]
enum Proof {
    /// The HMAC-SHA256 of the body in hexadecimal digits, with or without the prefix `sha256=`.
    Hmac,
    /// The secret itself.
    Token,
}

/// GitHub, Gitea and Forgejo, others, GitLab.
const HEADERS: [(&str, Proof); 4] = [
    ("x-hub-signature-256", Proof::Hmac),
    ("x-gitea-signature", Proof::Hmac),
    ("x-signature", Proof::Hmac),
    ("x-gitlab-token", Proof::Token),
];

/// Returns whether a request has any of the headers, so that it is worth to read the secret.
pub fn has_signature(headers: &HeaderMap) -> bool {
    HEADERS.iter().any(|(name, _)| headers.contains_key(*name))
}

/// Returns whether a header of the request proves that its sender knows the secret.
pub fn is_signed(headers: &HeaderMap, body: &[u8], secret: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let proves = |value: &HeaderValue, proof: Proof| match proof {
        Proof::Hmac => decode(value).is_some_and(|tag| hmac::verify(&key, body, &tag).is_ok()),
        // Compares the codes of both, because comparing the texts would take longer the more of them is right.
        Proof::Token => hmac::verify(&key, value.as_bytes(), hmac::sign(&key, secret).as_ref()).is_ok(),
    };
    !secret.is_empty()
        && HEADERS.iter().any(|(name, proof)| headers.get(*name).is_some_and(|value| proves(value, *proof)))
}

/// Decodes a code of 32 bytes.
fn decode(value: &HeaderValue) -> Option<[u8; 32]> {
    let text = value.to_str().ok()?.trim();
    let digits = text.strip_prefix("sha256=").unwrap_or(text);
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut code = [0; 32];
    for (position, byte) in code.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * position..2 * position + 2], 16).ok()?;
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    /// The example of GitHub's documentation for this secret and body.
    const SIGNATURE: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn signed(name: &'static str, value: &str) -> bool {
        let value = value.parse::<HeaderValue>().unwrap();
        let headers: HeaderMap = [(http::HeaderName::from_static(name), value)].into_iter().collect();
        assert_eq!(has_signature(&headers), name != "x-other");
        is_signed(&headers, BODY, SECRET)
    }

    #[test]
    fn the_signatures_of_git_hosts_are_accepted() {
        assert!(signed("x-hub-signature-256", &format!("sha256={SIGNATURE}")));
        assert!(signed("x-signature", &format!("sha256={SIGNATURE}")));
        assert!(signed("x-gitea-signature", SIGNATURE));
        assert!(signed("x-gitlab-token", "It's a Secret to Everybody"));
    }

    #[test]
    fn anything_else_is_refused() {
        let rows = [
            ("x-hub-signature-256", SIGNATURE.replace('7', "8")),
            ("x-hub-signature-256", "sha1=abc".to_owned()),
            ("x-hub-signature-256", format!("sha512={SIGNATURE}")),
            ("x-hub-signature-256", SIGNATURE[..62].to_owned()),
            ("x-hub-signature-256", "It's a Secret to Everybody".to_owned()),
            ("x-gitlab-token", SIGNATURE.to_owned()),
            ("x-gitlab-token", "It's a Secret".to_owned()),
            ("x-gitlab-token", String::new()),
            ("x-other", SIGNATURE.to_owned()),
        ];
        for (name, value) in rows {
            assert!(!signed(name, &value), "{name}: {value}");
        }
        let empty = [(http::HeaderName::from_static("x-gitlab-token"), HeaderValue::from_static(""))];
        let empty: HeaderMap = empty.into_iter().collect();
        assert!(!is_signed(&empty, BODY, b""), "an empty secret proves nothing");
    }
}
