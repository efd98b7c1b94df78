//! Compares the check of archives with Helm, which reads them with Go's `archive/tar`: an archive that the check accepts has
//! the same files for both.

use std::{
    io::{Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use chandler_core::digest::Digest;
use proptest::{
    collection::vec, prelude::*, sample::select, strategy::ValueTree as _, test_runner::TestRunner,
};
use serde::Deserialize;

use super::{
    testing::{TarBlock, gzip},
    *,
};

const ARCHIVES: usize = 3000;

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct ListedFile {
    name: String,
    digest: String,
}

#[derive(Debug, Deserialize)]
struct Listing {
    files: Vec<ListedFile>,
    error: Option<String>,
}

/// Lists archives with Helm's loader.
fn list_with_helm(archives: &[Vec<u8>]) -> Vec<Listing> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/helm");
    let mut go = Command::new("go");
    go.arg("-C").arg(module).args(["run", "./internal/archivelist"]);
    // The build cache is shared with the driver only if the flags are the same.
    go.env("CGO_ENABLED", "0").env("GOFLAGS", "-trimpath").env("GOWORK", "off");
    let mut go =
        go.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Go is needed to run this test");
    let mut stdin = go.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        scope.spawn(move || {
            for archive in archives {
                stdin.write_all(&u32::try_from(archive.len()).unwrap().to_be_bytes()).unwrap();
                stdin.write_all(archive).unwrap();
            }
        });
        go.wait_with_output().unwrap()
    });
    assert!(output.status.success());
    let lines = str::from_utf8(&output.stdout).unwrap().lines();
    let listings: Vec<Listing> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listings.len(), archives.len());
    listings
}

/// Lists an archive as the check reads it. `None` if it is refused.
fn list_with_check(archive: &[u8]) -> Option<Vec<ListedFile>> {
    validate(archive, archive.len() as u64).ok()?;
    let mut totals = Totals::new(archive.len() as u64);
    let mut reader = unpacked(archive);
    let mut files = Vec::new();
    while let Some(entry) = reader.next_entry(&mut totals).unwrap() {
        if entry.kind == EntryKind::File {
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            assert_eq!(content.len() as u64, entry.size);
            let digest = Digest::of(&content).hex().to_owned();
            files.push(ListedFile { name: entry.path_in_chart(), digest });
        }
    }
    Some(files)
}

fn mostly<T: Clone + std::fmt::Debug + 'static>(usual: T, others: Vec<T>) -> impl Strategy<Value = T> {
    prop_oneof![4 => Just(usual), 1 => select(others)]
}

/// Returns contents: text, records, names, and blocks that look like an entry of their own.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let hidden = TarBlock::new(b'0', b"web/charts/hidden.tgz", b"").bytes();
    let contents: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"text".to_vec(),
        b"web/long\0".to_vec(),
        b"web/charts/other.yaml".to_vec(),
        b"16 path=web/pax\n".to_vec(),
        b"20 mtime=1350244992\n".to_vec(),
        b"16 path=web/pax\n18 path=web/again\n".to_vec(),
        b"18 path=web\\pax/a\n".to_vec(),
        b"8 path=\n".to_vec(),
        b"9 size=0\n".to_vec(),
        b"15 comment=abc\n".to_vec(),
        hidden,
        vec![0; 600],
    ];
    select(contents)
}

fn block() -> impl Strategy<Value = TarBlock> {
    let kinds = prop_oneof![
        5 => Just(b'0'),
        5 => select(vec![0, b'5', b'L', b'x', b'g']),
        1 => select(vec![b'K', b'1', b'2', b'7', b'S', b'A', b'X']),
    ];
    let names = select(vec![
        "web/Chart.yaml",
        "web/a",
        "web/./a",
        "./a",
        "web/a/",
        "web/a/.",
        "web/",
        "web\\a",
        "web\\a\\",
        "web/a\\b",
        "web/\u{e9}",
        "",
    ]);
    let magic = mostly(
        *b"ustar\x0000",
        vec![*b"ustar  \0", [0; 8], *b"ustar\0\0\0", *b"ustar\x0001", *b"ustar 00", *b"\0\0\0\0\0\0\x001"],
    );
    let size = mostly(
        None,
        vec![
            Some(*b"00000000001\0"),
            Some(*b"\x0000000000001"),
            Some(*b"          1 "),
            Some(*b"1\0          "),
            Some(*b"\x80\0\0\0\0\0\0\0\0\0\0\x01"),
            Some(*b"+0000000001\0"),
            Some(*b"1 2        \0"),
            Some([0; 12]),
        ],
    );
    let mode = mostly(
        *b"0000644\0",
        vec![*b"0100644\0", *b"0040755\0", *b"0120777\0", *b"0000644 ", *b"        ", *b"\x00000644\0"],
    );
    let prefix = mostly(&b""[..], vec![&b"pre"[..], b"00000000000\0", b"web/charts", b"12345 \0abc"]);
    let trailer = mostly([0; 4], vec![*b"tar\0"]);
    (kinds, names, content(), magic, size, mode, prefix, trailer).prop_map(
        |(kind, name, content, magic, size, mode, prefix, trailer)| TarBlock {
            kind,
            name: name.as_bytes().to_vec(),
            content,
            magic,
            size,
            mode,
            prefix: prefix.to_vec(),
            trailer,
        },
    )
}

/// Returns archives of random entries with a random end.
fn archive() -> impl Strategy<Value = Vec<u8>> {
    let ends = mostly(vec![0; 1024], vec![Vec::new(), vec![0; 512], vec![0; 100], vec![0; 513]]);
    let split = prop_oneof![4 => Just(None), 1 => (0..2048_usize).prop_map(Some)];
    (vec(block(), 1..5), ends, split).prop_map(|(blocks, end, split)| {
        let mut plain: Vec<u8> = blocks.iter().flat_map(TarBlock::bytes).collect();
        plain.extend(end);
        match split {
            Some(at) => {
                let (first, second) = plain.split_at(at.min(plain.len()));
                [gzip(first), gzip(second)].concat()
            }
            None => gzip(&plain),
        }
    })
}

#[test]
fn accepted_archives_have_the_same_files_for_helm() {
    let mut runner = TestRunner::deterministic();
    let strategy = archive();
    let archives: Vec<_> = (0..ARCHIVES).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    let mut accepted = 0;
    for (archive, helm) in archives.iter().zip(list_with_helm(&archives)) {
        let Some(files) = list_with_check(archive) else { continue };
        // What Helm refuses, it does not install.
        if helm.error.is_none() {
            assert_eq!(files, helm.files, "{archive:?}");
            accepted += 1;
        }
    }
    assert!(accepted > ARCHIVES / 50, "too few archives are accepted to compare anything: {accepted}");
}

/// Each of these archives had other files for Go than for the check, before it refused them.
#[test]
fn archives_that_hide_files_are_refused() {
    let file = |name: &[u8], content: &[u8]| TarBlock::new(b'0', name, content);
    let hidden = || file(b"web/charts/hidden.tgz", b"no archive").bytes();
    let chart = file(b"web/Chart.yaml", b"name: web\n").bytes();
    let pack = |blocks: &[Vec<u8>]| gzip(&[blocks.concat(), vec![0; 1024]].concat());
    let long_name = TarBlock::new(b'L', b"", b"web/shown.yaml").bytes();
    let pax = |record: &[u8]| TarBlock::new(b'x', b"", record).bytes();
    let content = hidden();
    let padded = [content.clone(), vec![0; content.len().next_multiple_of(512) - content.len()]].concat();
    let zero_length = TarBlock { size: Some(*b"\x0000000002000"), ..file(b"web/a", &padded) };
    let rows = [
        ("a directory with content", TarBlock::new(b'5', b"web/", &padded).bytes()),
        ("an old directory with content", TarBlock::new(0, b"web/", &padded).bytes()),
        ("a size with a leading zero byte", zero_length.bytes()),
        (
            "two names",
            [long_name.clone(), pax(b"30 path=web/charts/hidden.tgz\n"), file(b"x", b"no archive").bytes()]
                .concat(),
        ),
        (
            "two names, the other way round",
            [pax(b"20 path=web/shown.a\n"), TarBlock::new(b'L', b"", b"web/charts/hidden.tgz").bytes()]
                .concat(),
        ),
        ("two extended headers", [pax(b"18 path=web/shown\n"), pax(b"15 comment=abc\n"), hidden()].concat()),
        (
            "a global header in between",
            [long_name, TarBlock::new(b'g', b"", b"15 comment=abc\n").bytes(), hidden()].concat(),
        ),
        (
            "a prefix of another version",
            TarBlock {
                magic: *b"ustar\x0001",
                prefix: b"web/charts".to_vec(),
                ..file(b"hidden.tgz", b"no archive")
            }
            .bytes(),
        ),
        (
            "times that Go takes for a prefix",
            TarBlock { magic: *b"ustar  \0", prefix: b"web/charts".to_vec(), ..file(b"hidden.tgz", b"x") }
                .bytes(),
        ),
    ];
    for (what, blocks) in rows {
        let archive = pack(&[chart.clone(), blocks]);
        let refused = validate(&archive[..], archive.len() as u64).unwrap_err();
        assert!(matches!(refused, ArchiveError::Ambiguous(_)), "{what}: {refused}");
    }
}
