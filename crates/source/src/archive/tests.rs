use proptest::prelude::*;
use tar::EntryType::{Block, Char, Directory, Fifo, GNULongName, GNUSparse, Link, Regular, Symlink, XHeader};

use super::{
    testing::{chart, gzip, pack},
    *,
};

fn validated(archive: &[u8]) -> Result<(), ArchiveError> {
    validate(archive, archive.len() as u64)
}

fn assert_rejected(archive: &[u8], text: &str) {
    let reason = validated(archive).unwrap_err().to_string();
    assert!(reason.contains(text), "{reason:?} does not contain {text:?}");
}

#[test]
fn charts_are_valid() {
    validated(&chart("web")).unwrap();
    let inner = chart("inner");
    let long = format!("web/{}", "x".repeat(150));
    validated(&pack(&[
        ("web", Directory, b""),
        ("web/Chart.yaml", Regular, b"name: web\n"),
        ("web/charts/inner-1.0.0.tgz", Regular, &inner),
        ("././@LongLink", GNULongName, long.as_bytes()),
        ("web/xxx", Regular, b"x"),
        ("web/files/not-a-chart.tgz", Regular, b"text"),
    ]))
    .unwrap();
}

#[test]
fn names_outside_the_chart_are_rejected() {
    let traversals = ["../x", "web/../../x", "/etc/passwd", "web\\..\\..\\x", "web/c:/x", "web/a\nb"];
    for name in traversals {
        assert_rejected(&pack(&[(name, Regular, b"x")]), "is outside the archive");
    }
    let long = "web/../../x".to_owned();
    assert_rejected(
        &pack(&[("././@LongLink", GNULongName, long.as_bytes()), ("web/x", Regular, b"x")]),
        "is outside the archive",
    );
    let record = b"18 path=../../etc\n";
    assert_rejected(&pack(&[("pax", XHeader, record), ("web/x", Regular, b"x")]), "is outside the archive");
}

#[test]
fn only_files_and_directories_are_accepted() {
    for kind in [Symlink, Link] {
        assert_rejected(&pack(&[("web/x", kind, b"")]), "a link");
    }
    for kind in [Char, Block, Fifo, GNUSparse] {
        assert_rejected(&pack(&[("web/x", kind, b"")]), "neither a file nor a directory");
    }
    assert_rejected(&pack(&[("pax", XHeader, b"11 size=99\n"), ("web/x", Regular, b"x")]), "extended size");
    assert_rejected(
        &pack(&[("pax", XHeader, b"22 GNU.sparse.major=1\n"), ("web/x", Regular, b"x")]),
        "sparse",
    );
}

#[test]
fn too_many_files_are_rejected() {
    let mut header = tar::Header::new_gnu();
    header.set_path("web/x").unwrap();
    header.set_size(0);
    header.set_cksum();
    let block = *header.as_bytes();
    assert_rejected(&gzip(&block.repeat(30_000)), "more than 20000 files");
}

#[test]
fn archive_bombs_are_rejected() {
    let zeros = vec![0; 20 << 20];
    assert_rejected(&pack(&[("web/x", Regular, &zeros)]), "more than 200 times its size");
    // Nested, so that each archive is small.
    let inner = pack(&[("inner/x", Regular, &zeros[..7 << 20])]);
    assert_rejected(
        &pack(&[("web/charts/a.tgz", Regular, &inner), ("web/charts/b.tgz", Regular, &inner)]),
        "times its size",
    );
    // In a second gzip stream after the first.
    let mut both = gzip(&[0; 0]);
    both.extend(pack(&[("web/x", Regular, &zeros)]));
    assert_rejected(&both, "times its size");
    let mut nested = chart("web");
    for _ in 0..10 {
        nested = pack(&[("web/charts/web.tgz", Regular, &nested)]);
    }
    assert_rejected(&nested, "nests charts");
    let in_folders = |levels| pack(&[(&format!("web/{}x", "charts/a/".repeat(levels)), Regular, b"x")]);
    validated(&in_folders(8)).unwrap();
    assert_rejected(&in_folders(9), "nests charts");
    let both = pack(&[(&format!("web/{}charts/a.tgz", "charts/a/".repeat(4)), Regular, &in_folders(4))]);
    assert_rejected(&both, "nests charts");
    assert_rejected(
        &pack(&[("././@LongLink", GNULongName, &vec![b'x'; 100 << 10]), ("web/x", Regular, b"x")]),
        "a header of more than",
    );
}

#[test]
fn archives_above_helms_size_limit_are_rejected() {
    let archive = pack(&[("web/x", Regular, &vec![0; 101 << 20])]);
    let reason = validate(&archive[..], 50 << 20).unwrap_err().to_string();
    assert!(reason.contains("more than 100 MiB"), "{reason}");
}

#[test]
fn invalid_archives_are_rejected() {
    for content in [&b""[..], b"text", &gzip(b"text"), &gzip(b""), &chart("web")[..50]] {
        assert!(validated(content).is_err(), "{content:?}");
    }
}

proptest! {
    #[test]
    fn validation_does_not_panic(content in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = validated(&content);
        let _ = validated(&gzip(&content));
    }

    #[test]
    fn corrupted_archives_are_rejected_or_harmless(at in 0..1024_usize, byte in any::<u8>()) {
        let content = pack(&[("web/Chart.yaml", Regular, b"name: web\n"), ("web/x", Regular, b"x")]);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&content[..]).read_to_end(&mut plain).unwrap();
        plain[at] = byte;
        if validated(&gzip(&plain)).is_ok() {
            for entry in tar::Archive::new(&plain[..]).entries().unwrap() {
                let entry = entry.unwrap();
                prop_assert!(matches!(entry.header().entry_type(), Regular | Directory));
                let path = entry.path().unwrap().into_owned();
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)));
            }
        }
    }

    #[test]
    fn valid_names_are_inside_the_chart(name in "[a-z./\\\\:]{1,40}") {
        if validated(&pack(&[(&name, Regular, b"x")])).is_ok() {
            let path = name.replace('\\', "/");
            prop_assert!(!path.starts_with('/') && path.split('/').all(|part| part != ".."), "{path}");
        }
    }
}
