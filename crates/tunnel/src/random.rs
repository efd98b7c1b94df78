//! Random bytes of the operating system.

use ring::rand::{SecureRandom as _, SystemRandom};

/// The operating system provides no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system provides no random bytes")]
pub struct RandomError;

/// Returns random bytes that are fit for keys.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| RandomError)?;
    Ok(bytes)
}

/// Writes bytes as lowercase hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 0xf)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Reads exactly `2 * N` lowercase hexadecimal digits.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let digit = |value: u8| match value {
        b'0'..=b'9' => Some(value - b'0'),
        b'a'..=b'f' => Some(value - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_read_strictly() {
        assert_eq!(to_hex(&[0x00, 0x9f, 0xa0]), "009fa0");
        assert_eq!(from_hex::<3>("009fa0"), Some([0x00, 0x9f, 0xa0]));
        for wrong in ["", "009fa", "009fa00", "009FA0", "009fg0", "+09fa0", "00é0a"] {
            assert_eq!(from_hex::<3>(wrong), None, "{wrong}");
        }
    }
}
