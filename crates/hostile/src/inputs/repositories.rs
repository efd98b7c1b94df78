//! Indexes and redirects of Helm repositories.

use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use chandler_sandbox::hostile::{
    archive::{chart_yaml, pack},
    repository::{endless, index, redirect},
};
use chandler_source::Limits;

use super::{alias_bomb, input, needing, nested_lists};
use crate::{Attempt, Input, Lab, Needs};

pub(super) const INPUTS: &[Input] = &[
    needing(
        Needs::Time,
        input("index", "endless", "never ends", "is larger than the limit of", index_endless),
    ),
    needing(
        Needs::Time,
        input("index", "slow", "sends a byte every 100 ms (limit here: 3 s)", "within 3 s", index_slow),
    ),
    input(
        "index",
        "aliases",
        "YAML in which a few lines stand for billions of values",
        "anchor",
        index_aliases,
    ),
    input("index", "nested", "100,000 nested lists", "the index of repository", index_nested),
    input("index", "web page", "is a web page with a login form", "the index of repository", index_page),
    input("index", "metadata service", "names an archive at 169.254.169.254", "link-local", index_metadata),
    input("index", "loopback", "names an archive at [::1]", "loopback", index_loopback),
    input("index", "local file", "names file:///etc/passwd", "not an https://", index_file),
    input("index", "login", "names an archive with a login in its URL", "without a user name", index_login),
    input(
        "index",
        "other digest",
        "announces another digest than that of the archive",
        "replaced",
        index_digest,
    ),
    input("redirect", "endless", "redirects to itself", "redirects", redirect_endless),
    input("redirect", "metadata service", "redirects to 169.254.169.254", "link-local", redirect_metadata),
    input("redirect", "without TLS", "redirects to http://", "not an https://", redirect_http),
    input("redirect", "mapped loopback", "redirects to [::ffff:127.0.0.9]", "loopback", redirect_mapped),
    input("redirect", "login", "redirects to a URL with a login", "without a user name", redirect_login),
];

fn with_index(lab: &Lab, text: String) -> Attempt {
    lab.install(Limits::default(), move |_| text.clone().into_response())
}

fn with_archive_at(lab: &Lab, url: &'static str) -> Attempt {
    lab.install(Limits::default(), move |_| index(url, ""))
}

fn with_redirect_to(lab: &Lab, target: &'static str) -> Attempt {
    lab.install(Limits::default(), move |_| redirect(target))
}

fn index_endless(lab: &Lab) -> Attempt {
    const COMMENT: &[u8] = &[b'#'; 1 << 16];
    lab.install(Limits::default(), |_| endless(COMMENT, Duration::ZERO))
}

fn index_slow(lab: &Lab) -> Attempt {
    let limits = Limits { total_timeout: Duration::from_secs(3), ..Limits::default() };
    lab.install(limits, |_| endless(b"#", Duration::from_millis(100)))
}

fn index_aliases(lab: &Lab) -> Attempt {
    with_index(lab, alias_bomb() + "entries: {web: *a11}\n")
}

fn index_nested(lab: &Lab) -> Attempt {
    with_index(lab, format!("entries: {{web: {}}}\n", nested_lists(100_000)))
}

fn index_page(lab: &Lab) -> Attempt {
    with_index(lab, "<html><form>Sign in</form></html>".to_owned())
}

fn index_metadata(lab: &Lab) -> Attempt {
    with_archive_at(lab, "https://169.254.169.254/latest/meta-data")
}

fn index_loopback(lab: &Lab) -> Attempt {
    with_archive_at(lab, "https://[::1]/web.tgz")
}

fn index_file(lab: &Lab) -> Attempt {
    with_archive_at(lab, "file:///etc/passwd")
}

fn index_login(lab: &Lab) -> Attempt {
    with_archive_at(lab, "https://user:password@charts.example/web.tgz")
}

fn index_digest(lab: &Lab) -> Attempt {
    let archive = pack(&[chart_yaml()])?;
    let respond = move |path: &str| -> Response {
        if path == "/index.yaml" {
            index("web.tgz", &"0".repeat(64))
        } else {
            archive.clone().into_response()
        }
    };
    lab.install(Limits::default(), respond)
}

fn redirect_endless(lab: &Lab) -> Attempt {
    with_redirect_to(lab, "/again")
}

fn redirect_metadata(lab: &Lab) -> Attempt {
    with_redirect_to(lab, "https://169.254.169.254/latest/meta-data")
}

fn redirect_http(lab: &Lab) -> Attempt {
    with_redirect_to(lab, "http://charts.example/index.yaml")
}

fn redirect_mapped(lab: &Lab) -> Attempt {
    with_redirect_to(lab, "https://[::ffff:127.0.0.9]/index.yaml")
}

fn redirect_login(lab: &Lab) -> Attempt {
    with_redirect_to(lab, "https://user:password@charts.example/index.yaml")
}
