use EntryType::{Block, Char, Directory, Fifo, GNULongName, GNUSparse, Link, Regular, Symlink, XHeader};
use proptest::prelude::*;

use super::{
    testing::{chart, packed, zipped},
    *,
};

fn checked(archive: &[u8]) -> Result<(), ArchiveError> {
    check(archive, archive.len() as u64)
}

fn says(archive: &[u8], hint: &str) {
    let reason = checked(archive).unwrap_err().to_string();
    assert!(reason.contains(hint), "{reason:?} does not say {hint:?}");
}

#[test]
fn charts_pass() {
    checked(&chart("web")).unwrap();
    let inner = chart("inner");
    let long = format!("web/{}", "x".repeat(150));
    checked(&packed(&[
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
fn names_never_lead_out() {
    let traversals = ["../x", "web/../../x", "/etc/passwd", "web\\..\\..\\x", "web/c:/x", "web/a\nb"];
    for name in traversals {
        says(&packed(&[(name, Regular, b"x")]), "leads out of the chart");
    }
    let long = "web/../../x".to_owned();
    says(
        &packed(&[("././@LongLink", GNULongName, long.as_bytes()), ("web/x", Regular, b"x")]),
        "leads out of the chart",
    );
    let record = b"18 path=../../etc\n";
    says(&packed(&[("pax", XHeader, record), ("web/x", Regular, b"x")]), "leads out of the chart");
}

#[test]
fn only_files_and_folders() {
    for kind in [Symlink, Link] {
        says(&packed(&[("web/x", kind, b"")]), "a link");
    }
    for kind in [Char, Block, Fifo, GNUSparse] {
        says(&packed(&[("web/x", kind, b"")]), "neither file nor folder");
    }
    says(&packed(&[("pax", XHeader, b"11 size=99\n"), ("web/x", Regular, b"x")]), "extended size");
    says(&packed(&[("pax", XHeader, b"22 GNU.sparse.major=1\n"), ("web/x", Regular, b"x")]), "sparse");
}

#[test]
fn too_many_files_are_refused() {
    let mut header = tar::Header::new_gnu();
    header.set_path("web/x").unwrap();
    header.set_size(0);
    header.set_cksum();
    let block = *header.as_bytes();
    says(&zipped(&block.repeat(30_000)), "more than 20000 files");
}

#[test]
fn bombs_are_refused_however_they_are_packed() {
    let zeros = vec![0; 20 << 20];
    says(&packed(&[("web/x", Regular, &zeros)]), "more than 200 times its size");
    // Nested: each small on its own.
    let inner = packed(&[("inner/x", Regular, &zeros[..7 << 20])]);
    says(
        &packed(&[("web/charts/a.tgz", Regular, &inner), ("web/charts/b.tgz", Regular, &inner)]),
        "times its size",
    );
    // In a second stream behind the first.
    let mut both = zipped(&[0; 0]);
    both.extend(packed(&[("web/x", Regular, &zeros)]));
    says(&both, "times its size");
    let mut nested = chart("web");
    for _ in 0..10 {
        nested = packed(&[("web/charts/web.tgz", Regular, &nested)]);
    }
    says(&nested, "nests charts");
    says(
        &packed(&[("././@LongLink", GNULongName, &vec![b'x'; 100 << 10]), ("web/x", Regular, b"x")]),
        "a header of more than",
    );
}

#[test]
fn more_than_helm_loads_is_refused_whatever_its_ratio() {
    let archive = packed(&[("web/x", Regular, &vec![0; 101 << 20])]);
    let reason = check(&archive[..], 50 << 20).unwrap_err().to_string();
    assert!(reason.contains("more than 100 MiB"), "{reason}");
}

#[test]
fn what_is_no_archive_is_refused() {
    for content in [&b""[..], b"text", &zipped(b"text"), &zipped(b""), &chart("web")[..50]] {
        assert!(checked(content).is_err(), "{content:?}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(content in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = checked(&content);
        let _ = checked(&zipped(&content));
    }

    #[test]
    fn a_damaged_archive_is_refused_or_harmless(at in 0..1024_usize, byte in any::<u8>()) {
        let content = packed(&[("web/Chart.yaml", Regular, b"name: web\n"), ("web/x", Regular, b"x")]);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&content[..]).read_to_end(&mut plain).unwrap();
        plain[at] = byte;
        if checked(&zipped(&plain)).is_ok() {
            for entry in tar::Archive::new(&plain[..]).entries().unwrap() {
                let entry = entry.unwrap();
                prop_assert!(matches!(entry.header().entry_type(), Regular | Directory));
                let path = entry.path().unwrap().into_owned();
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)));
            }
        }
    }

    #[test]
    fn names_that_pass_stay_inside(name in "[a-z./\\\\:]{1,40}") {
        if checked(&packed(&[(&name, Regular, b"x")])).is_ok() {
            let path = name.replace('\\', "/");
            prop_assert!(!path.starts_with('/') && path.split('/').all(|part| part != ".."), "{path}");
        }
    }
}
