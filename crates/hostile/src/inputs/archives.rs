//! Archives of charts.

use chandler_sandbox::hostile::archive::{
    chart_yaml, entry, file, header, header_with_size, pack, pack_repeated, zeros,
};

use super::{input, needing};
use crate::{Attempt, Input, Lab, Needs};

pub(super) const INPUTS: &[Input] = &[
    needing(Needs::Time, input("archive", "bomb", "unpacks to 1 GiB of zeros", "more than 100 MiB", bomb)),
    input(
        "archive",
        "nested bombs",
        "each subchart unpacks to 6 MiB of zeros",
        "times its size",
        nested_bombs,
    ),
    input(
        "archive",
        "nested charts",
        "a chart in a chart in a chart, 12 times",
        "nests charts",
        nested_charts,
    ),
    input(
        "archive",
        "folders of charts",
        "a chart in a folder of a chart, 1,000 times",
        "nests charts",
        folders_of_charts,
    ),
    needing(Needs::Time, input("archive", "files", "a million empty files", "more than 20000 files", files)),
    needing(
        Needs::Time,
        input("archive", "headers", "a million headers for the next entry", "two extension headers", headers),
    ),
    needing(
        Needs::Time,
        input(
            "archive",
            "global headers",
            "300 MiB of headers for all entries",
            "more than 100 MiB",
            global_headers,
        ),
    ),
    input("archive", "long header", "a name of 1 MiB", "a header of more than", long_header),
    input(
        "archive",
        "parent folder",
        "a file outside of the archive",
        "is outside the archive",
        parent_folder,
    ),
    input("archive", "absolute path", "a file at /etc/passwd", "is outside the archive", absolute_path),
    input(
        "archive",
        "backslashes",
        "a file outside of the archive on Windows",
        "is outside the archive",
        backslashes,
    ),
    input("archive", "symbolic link", "a link to /etc/passwd", "a link", symbolic_link),
    input("archive", "hard link", "a link to another file", "a link", hard_link),
    input("archive", "device", "a device", "neither a file nor a directory", device),
    input("archive", "sparse file", "a file of 1 TiB that is mostly holes", "a sparse file", sparse_file),
    input("archive", "extended size", "a size that only some readers use", "extended size", extended_size),
    input(
        "archive",
        "folder with content",
        "a folder whose content hides a file",
        "with content",
        folder_content,
    ),
    input("archive", "two names", "an entry with two names", "two extension headers", two_names),
    input("archive", "two sizes", "a size that readers parse differently", "not octal", two_sizes),
    input("archive", "hidden end", "files after the end of the archive", "after the end", hidden_end),
    input("archive", "truncated", "ends within a file", "ends within an entry", truncated),
    input("archive", "noise", "is not compressed", "cannot be read", noise),
    input("chart", "large values", "values.yaml of 3 MiB", "is larger than 2 MiB", large_values),
    input("chart", "nested values", "values.yaml with 100,000 nested lists", "values.yaml", nested_values),
    input(
        "chart",
        "nested schema",
        "values.schema.json with 100,000 nested lists",
        "recursion limit",
        nested_schema,
    ),
];

fn with(lab: &Lab, entries: &[Vec<u8>]) -> Attempt {
    lab.store(&pack(&[&[chart_yaml()], entries].concat())?)
}

fn bomb(lab: &Lab) -> Attempt {
    lab.store(&zeros(1024)?)
}

fn nested_bombs(lab: &Lab) -> Attempt {
    let inner = zeros(6)?;
    with(lab, &[file("web/charts/a.tgz", &inner), file("web/charts/b.tgz", &inner)])
}

fn nested_charts(lab: &Lab) -> Attempt {
    let mut archive = pack(&[chart_yaml()])?;
    for _ in 0..12 {
        archive = pack(&[file("web/charts/web.tgz", &archive)])?;
    }
    lab.store(&archive)
}

/// For each level, Helm keeps a list of all files below it.
fn folders_of_charts(lab: &Lab) -> Attempt {
    let name = format!("web/{}values.yaml", "charts/a/".repeat(1000));
    with(lab, &[entry(b'L', "", name.as_bytes()), file("web/x", b"x")])
}

fn files(lab: &Lab) -> Attempt {
    lab.store(&pack_repeated(&header(b'0', "web/x", 0), 1_000_000)?)
}

fn headers(lab: &Lab) -> Attempt {
    lab.store(&pack_repeated(&entry(b'L', "", b"web/x"), 1_000_000)?)
}

fn global_headers(lab: &Lab) -> Attempt {
    let comment = [b"65000 comment=".as_slice(), &vec![b'x'; 65_000 - 15], b"\n"].concat();
    lab.store(&pack_repeated(&entry(b'g', "", &comment), 5000)?)
}

fn long_header(lab: &Lab) -> Attempt {
    with(lab, &[entry(b'L', "", &vec![b'x'; 1 << 20]), file("web/x", b"x")])
}

fn parent_folder(lab: &Lab) -> Attempt {
    with(lab, &[file("web/../../etc/passwd", b"x")])
}

fn absolute_path(lab: &Lab) -> Attempt {
    with(lab, &[file("/etc/passwd", b"x")])
}

fn backslashes(lab: &Lab) -> Attempt {
    with(lab, &[file("web\\..\\..\\x", b"x")])
}

fn symbolic_link(lab: &Lab) -> Attempt {
    with(lab, &[entry(b'2', "web/x", b"")])
}

fn hard_link(lab: &Lab) -> Attempt {
    with(lab, &[entry(b'1', "web/x", b"")])
}

fn device(lab: &Lab) -> Attempt {
    with(lab, &[entry(b'3', "web/x", b"")])
}

fn sparse_file(lab: &Lab) -> Attempt {
    let records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n37 GNU.sparse.realsize=1099511627776\n";
    with(lab, &[entry(b'x', "", records), file("web/x", b"1\n0\n1\nx")])
}

fn extended_size(lab: &Lab) -> Attempt {
    with(lab, &[entry(b'x', "", b"12 size=512\n"), file("web/x", b"x")])
}

fn folder_content(lab: &Lab) -> Attempt {
    with(lab, &[entry(b'5', "web/", &file("web/charts/hidden.tgz", b"x"))])
}

fn two_names(lab: &Lab) -> Attempt {
    let names = [entry(b'L', "", b"web/shown.yaml"), entry(b'x', "", b"30 path=web/charts/hidden.tgz\n")];
    with(lab, &[names.concat(), file("web/x", b"x")])
}

fn two_sizes(lab: &Lab) -> Attempt {
    let hidden = file("web/charts/hidden.tgz", b"x");
    with(lab, &[header_with_size(b'0', "web/x", b"\x0000000002000").to_vec(), hidden])
}

fn hidden_end(lab: &Lab) -> Attempt {
    with(lab, &[vec![0; 512], file("web/charts/hidden.tgz", b"x")])
}

fn truncated(lab: &Lab) -> Attempt {
    with(lab, &[header(b'0', "web/x", 1 << 20).to_vec()])
}

fn noise(lab: &Lab) -> Attempt {
    lab.store(&(0..=255).cycle().take(1 << 20).collect::<Vec<u8>>())
}

fn large_values(lab: &Lab) -> Attempt {
    let comment = "# comment\n".repeat(320 << 10);
    lab.read_values(&pack(&[chart_yaml(), file("web/values.yaml", comment.as_bytes())])?)
}

fn nested_values(lab: &Lab) -> Attempt {
    let values = format!("a: {}", super::nested_lists(100_000));
    lab.read_values(&pack(&[chart_yaml(), file("web/values.yaml", values.as_bytes())])?)
}

fn nested_schema(lab: &Lab) -> Attempt {
    let schema = super::nested_lists(100_000);
    lab.read_values(&pack(&[chart_yaml(), file("web/values.schema.json", schema.as_bytes())])?)
}
