//! Compares URLs with allowed beginnings of URLs.

/// Returns whether a URL begins with one of the prefixes. A URL that may be read in two ways is not allowed.
pub(super) fn allows(prefixes: &[String], url: &str) -> bool {
    let Some(url) = canonical(url) else { return false };
    prefixes
        .iter()
        .filter_map(|prefix| canonical(prefix))
        .any(|prefix| url.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Returns a URL without user name, default port and `/` at the end, with scheme and host in lower case. Returns `None` if a server
/// or client may read it as another one: it has a query, a fragment, an escaped character or a segment such as `..`.
fn canonical(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    // Clients end the authority at each of them, so an `@` after it is not the end of a user name.
    let end = rest.find(['/', '?', '#', '\\']);
    let (authority, path) = end.map_or((rest, ""), |end| rest.split_at(end));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let is_plain = |c: char| !matches!(c, '?' | '#' | '%' | '\\' | '@');
    let is_readable = url.chars().all(|c| c.is_ascii_graphic());
    if scheme.is_empty() || host.is_empty() || !is_readable || !host.chars().chain(path.chars()).all(is_plain)
    {
        return None;
    }
    let path = path.trim_end_matches('/');
    if path.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
        return None;
    }
    let (scheme, host) = (scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
    let default_port = if scheme == "ssh" { ":22" } else { ":443" };
    let host = host.strip_suffix(default_port).unwrap_or(&host);
    Some(format!("{scheme}://{host}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_a_segment_of_the_path() {
        let prefixes = [
            "https://charts.example/team-a/",
            "oci://registry.example:5000/team-a",
            "ssh://git.example/team-a",
        ]
        .map(str::to_owned);
        let rows = [
            ("https://charts.example/team-a", true),
            ("https://charts.example/team-a/", true),
            ("https://charts.example/team-a/stable", true),
            ("https://Charts.Example:443/team-a/stable", true),
            ("https://user:word@charts.example/team-a", true),
            ("https://charts.example/team-a-2", false),
            ("https://charts.example/team", false),
            ("https://charts.example/Team-A", false),
            ("https://charts.example", false),
            ("https://charts.example/team-a/../team-b", false),
            ("https://charts.example/team-a/%2e%2e/team-b", false),
            ("https://charts.example/team-a//stable", false),
            ("https://charts.example/team-a\\..\\team-b", false),
            ("https://charts.example/team-a?to=team-b", false),
            ("https://charts.example.evil/team-a", false),
            ("https://charts.example@evil.example/team-a", false),
            ("https://evil.example?@charts.example/team-a", false),
            ("https://evil.example#@charts.example/team-a", false),
            ("https://evil.example\\@charts.example/team-a", false),
            ("https://evil.example/@charts.example/team-a", false),
            ("https://us\ter@charts.example/team-a", false),
            ("https:///charts.example/team-a", false),
            ("https://evil.example/https://charts.example/team-a", false),
            ("http://charts.example/team-a", false),
            ("oci://registry.example:5000/team-a/web", true),
            ("oci://registry.example/team-a/web", false),
            ("https://registry.example:5000/team-a/web", false),
            ("ssh://git@git.example:22/team-a/apps.git", true),
            ("ssh://git@git.example/team-b/apps.git", false),
            ("charts.example/team-a", false),
            ("", false),
        ];
        for (url, expected) in rows {
            assert_eq!(allows(&prefixes, url), expected, "{url}");
        }
        assert!(allows(&["https://charts.example".to_owned()], "https://charts.example/any"));
        assert!(!allows(&["https://charts.example".to_owned()], "https://charts.example.evil"));
        assert!(!allows(&[], "https://charts.example"));
    }
}
