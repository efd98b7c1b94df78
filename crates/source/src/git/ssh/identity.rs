//! The private key of a Source.

use russh::keys::{Algorithm, PrivateKey, decode_secret_key, ssh_key::Kdf};

use crate::access::SshKey;

/// Limit of the effort to decrypt a key. `ssh-keygen` uses 16 or 24 rounds.
const MAX_ROUNDS: u32 = 256;
const OPENSSH: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const OTHERS: [&str; 2] = ["-----BEGIN PRIVATE KEY-----", "-----BEGIN EC PRIVATE KEY-----"];
const UNREADABLE: &str = "identity is not an ed25519 or ecdsa key; create one with `ssh-keygen -t ed25519`";

/// Reads the private key. An error states what is wrong with it.
pub(super) fn read(key: &SshKey) -> Result<PrivateKey, &'static str> {
    let text = key.identity.trim();
    let decoded = if text.starts_with(OPENSSH) {
        openssh(text, key.passphrase.as_deref())?
    } else if OTHERS.iter().any(|header| text.starts_with(header)) {
        decode_secret_key(text, None).map_err(|_| UNREADABLE)?
    } else {
        return Err(UNREADABLE);
    };
    match decoded.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => Ok(decoded),
        _ => Err(UNREADABLE),
    }
}

fn openssh(text: &str, passphrase: Option<&str>) -> Result<PrivateKey, &'static str> {
    // Without the line endings of other systems.
    let lines: String = text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
    let key = PrivateKey::from_openssh(lines).map_err(|_| UNREADABLE)?;
    if !key.is_encrypted() {
        return Ok(key);
    }
    let passphrase =
        passphrase.ok_or("identity is encrypted; add its passphrase to the Secret, as password")?;
    if matches!(key.kdf(), Kdf::Bcrypt { rounds, .. } if *rounds > MAX_ROUNDS) {
        return Err(
            "identity is encrypted with too many rounds; encrypt it again: `ssh-keygen -p -a 16 -f FILE`",
        );
    }
    key.decrypt(passphrase).map_err(|_| "password is not the passphrase of identity")
}

#[cfg(test)]
mod tests {
    use russh::keys::ssh_key::LineEnding;

    use super::*;

    /// The example of RFC 8410. Flux generates keys in this format.
    const PKCS8: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";

    fn key(identity: &str, passphrase: Option<&str>) -> Result<PrivateKey, &'static str> {
        read(&SshKey {
            identity: identity.to_owned(),
            passphrase: passphrase.map(str::to_owned),
            known_hosts: String::new(),
        })
    }

    #[test]
    fn keys_of_flux_and_openssh_are_read() {
        let flux = key(PKCS8, None).unwrap();
        assert_eq!(flux.algorithm(), Algorithm::Ed25519);
        let openssh = flux.to_openssh(LineEnding::LF).unwrap();
        assert_eq!(key(openssh.trim_end(), Some("unused")).unwrap().public_key(), flux.public_key());
        assert_eq!(key(&openssh.replace('\n', "\r\n"), None).unwrap().public_key(), flux.public_key());
    }

    #[test]
    fn other_keys_are_refused() {
        let rsa = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n";
        let truncated = format!("{OPENSSH}\nAAAA\n");
        for text in ["", "nonsense", rsa, &truncated, "-----BEGIN PRIVATE KEY-----"] {
            assert_eq!(key(text, None).err(), Some(UNREADABLE), "{text}");
        }
    }
}
