//! PAX records: `LENGTH KEY=VALUE\n`, where the length is that of the whole record.

use super::ArchiveError;

/// Returns the name in the records for one entry. Sizes, links and sparse files are refused, because readers disagree about
/// them.
pub(super) fn name(content: &[u8]) -> Result<Option<Vec<u8>>, ArchiveError> {
    let mut name = None;
    for (key, value) in records(content)? {
        check_key(key)?;
        if key == b"path" && name.replace(value.to_vec()).is_some() {
            return Err(ArchiveError::Ambiguous("two names for one entry"));
        }
    }
    Ok(name)
}

/// Checks records for all entries: Go ignores a name there, other readers use it.
pub(super) fn check_global(content: &[u8]) -> Result<(), ArchiveError> {
    for (key, _) in records(content)? {
        check_key(key)?;
        if key == b"path" {
            return Err(ArchiveError::Ambiguous("one name for all entries"));
        }
    }
    Ok(())
}

fn check_key(key: &[u8]) -> Result<(), ArchiveError> {
    match key {
        b"size" | b"linkpath" => Err(ArchiveError::ExtendedSizeOrLink),
        key if key.starts_with(b"GNU.sparse") => Err(ArchiveError::Sparse),
        _ => Ok(()),
    }
}

/// Key and value of a record.
type Record<'a> = (&'a [u8], &'a [u8]);

fn records(mut content: &[u8]) -> Result<Vec<Record<'_>>, ArchiveError> {
    let mut records = Vec::new();
    while !content.is_empty() {
        let (key, value, rest) = record(content).ok_or(ArchiveError::InvalidRecord)?;
        records.push((key, value));
        content = rest;
    }
    Ok(records)
}

/// Returns key and value of the first record, and what follows it.
fn record(content: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = content.iter().position(|byte| *byte == b' ')?;
    let length = &content[..space];
    if !length.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length: usize = str::from_utf8(length).ok()?.parse().ok()?;
    let (record, rest) = content.split_at_checked(length)?;
    let text = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|byte| *byte == b'=')?;
    let (key, value) = (&text[..equals], &text[equals + 1..]);
    if key.is_empty() || key.contains(&0) { None } else { Some((key, value, rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_by_their_length() {
        let rows: [(&[u8], Option<&[u8]>); 4] = [
            (b"", None),
            (b"12 path=a/b\n", Some(b"a/b")),
            // A value may contain what looks like a record.
            (b"28 comment=x\n12 path=wrong\n\n12 path=a/b\n", Some(b"a/b")),
            (b"20 mtime=1350244992\n12 path=a/b\n", Some(b"a/b")),
        ];
        for (content, expected) in rows {
            assert_eq!(name(content).unwrap().as_deref(), expected, "{content:?}");
        }
    }

    #[test]
    fn what_readers_disagree_about_is_refused() {
        let rows: [&[u8]; 13] = [
            b"12 path=a/b\n12 path=a/c\n",
            b"11 size=99\n",
            b"14 linkpath=a\n",
            b"22 GNU.sparse.major=1\n",
            b"12 path=a/b",
            b"13 path=a/b\n",
            b"11 path=a/b\n",
            b"+12 path=ab\n",
            b"0 path=a/b\n",
            b"99999999999999999999 path=a\n",
            b"7 =abc\n",
            b"8 abcde\n",
            b"\n",
        ];
        for content in rows {
            assert!(name(content).is_err(), "{content:?}");
        }
        check_global(b"15 comment=abc\n").unwrap();
        for content in [&b"12 path=a/b\n"[..], b"11 size=99\n", b"text"] {
            assert!(check_global(content).is_err(), "{content:?}");
        }
    }
}
