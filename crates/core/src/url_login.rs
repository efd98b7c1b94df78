//! Logins in URLs. They are used, but never shown: statuses, Events and logs have more readers than the password.

use std::{borrow::Cow, fmt, ops::Range};

const SEPARATOR: &str = "://";

/// Shows a URL without user name and password. Of an ssh URL, the user name is shown: it is no secret.
#[derive(Clone, Copy)]
pub struct WithoutLogin<'a>(pub &'a str);

impl fmt::Display for WithoutLogin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Range { start, end }) = login(self.0) else { return f.write_str(self.0) };
        f.write_str(&self.0[..start])?;
        f.write_str(&self.0[end..])
    }
}

impl fmt::Debug for WithoutLogin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Returns whether a URL contains a user name or password, other than the user name of an ssh URL.
pub fn has_login(url: &str) -> bool {
    login(url).is_some()
}

/// Returns a text without the logins of the URLs in it.
pub fn without_logins(text: &str) -> Cow<'_, str> {
    let mut clean = String::new();
    let mut copied = 0;
    let mut from = 0;
    while let Some(found) = text[from..].find(SEPARATOR) {
        let separator = from + found;
        let after = separator + SEPARATOR.len();
        let scheme = text[..separator].rfind(|c: char| !is_scheme(c));
        let start = scheme.map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
        let end = text[after..].find(ends_url).map_or(text.len(), |end| after + end);
        if let Some(login) = login(&text[start..end]) {
            clean.push_str(&text[copied..start + login.start]);
            copied = start + login.end;
        }
        from = after.max(copied);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    clean.push_str(&text[copied..]);
    Cow::Owned(clean)
}

fn is_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

fn ends_url(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>')
}

/// Returns where the login of a URL is, with the `@` after it. Of an ssh URL, only the password.
fn login(url: &str) -> Option<Range<usize>> {
    let start = after_scheme(url);
    let rest = &url[start..];
    let end = login_end(rest)?;
    if !url[..start].eq_ignore_ascii_case("ssh://") {
        return Some(start..start + end + 1);
    }
    let password = rest[..end].find(':')?;
    Some(start + password..start + end)
}

/// Returns where the host of a URL begins, or the login before it. Parsers of https URLs accept any number of slashes and
/// backslashes there.
fn after_scheme(url: &str) -> usize {
    let colon = [":/", ":\\"].into_iter().filter_map(|separator| url.find(separator)).min();
    colon.map_or(0, |colon| url.len() - without_slashes(&url[colon + 1..]).len())
}

fn without_slashes(text: &str) -> &str {
    text.trim_start_matches(['/', '\\'])
}

/// Returns where the `@` at the end of the login is. What follows it could be taken for another login, which belongs to it then.
fn login_end(rest: &str) -> Option<usize> {
    let (mut end, mut from) = (None, 0);
    while let Some(found) = first_login_end(&rest[from..]) {
        let at = from + found;
        end = Some(at);
        from = rest.len() - without_slashes(&rest[at + 1..]).len();
    }
    end
}

fn first_login_end(rest: &str) -> Option<usize> {
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    // A password with an unescaped slash: what precedes it looks like a host with a port that is no number.
    authority.rfind('@').or_else(|| rest.rfind('@').filter(|_| has_invalid_port(authority)))
}

fn has_invalid_port(authority: &str) -> bool {
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    !authority.ends_with(']') && port.bytes().any(|byte| !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn logins_are_not_shown() {
        let rows = [
            ("https://user:canary@charts.example/x", "https://charts.example/x"),
            ("HTTPS://canary@charts.example:8443", "HTTPS://charts.example:8443"),
            ("https://user:c@nary@charts.example", "https://charts.example"),
            ("https://user:can/ary@charts.example", "https://charts.example"),
            ("oci://user:canary@[::1]:5000/a", "oci://[::1]:5000/a"),
            ("https://:canary@charts.example?a#b", "https://charts.example?a#b"),
            ("https:user:canary@charts.example/x", "charts.example/x"),
            ("https:/user:canary@charts.example/x", "https:/charts.example/x"),
            ("https:///user:canary@charts.example", "https:///charts.example"),
            ("https:\\\\user:canary@charts.example", "https:\\\\charts.example"),
            ("user:canary@charts.example/x", "charts.example/x"),
            ("ssh://git:canary@git.example/a", "ssh://git@git.example/a"),
        ];
        for (url, shown) in rows {
            assert_eq!(WithoutLogin(url).to_string(), shown);
            assert_eq!(format!("{:?}", WithoutLogin(url)), format!("\"{shown}\""));
            assert!(has_login(url), "{url}");
        }
        let without = [
            "https://charts.example/a@b",
            "https://charts.example:8443/a@b",
            "https://[::1]/a@b",
            "ssh://git@git.example/a",
            "oci://registry.example/charts",
            "",
        ];
        for url in without {
            assert_eq!(WithoutLogin(url).to_string(), url);
            assert!(!has_login(url), "{url}");
        }
    }

    #[test]
    fn texts_are_shown_without_the_logins_in_them() {
        let rows = [
            (
                "cannot get https://user:canary@a.example/x: \"oci://canary@b.example\" failed",
                "cannot get https://a.example/x: \"oci://b.example\" failed",
            ),
            ("cannot get https:///u:canary@a.example", "cannot get https:///a.example"),
            ("(http://u:canary@a) and (http://u:canary@b)", "(http://a) and (http://b)"),
            ("é://canary@a", "é://a"),
            ("https://@:canary/canary@a", "https://a"),
            ("https://a.example/b@c, mail@example.org", "https://a.example/b@c, mail@example.org"),
            ("write it as ssh://git@git.example/a", "write it as ssh://git@git.example/a"),
        ];
        for (text, shown) in rows {
            assert_eq!(without_logins(text), shown);
        }
    }

    proptest! {
        #[test]
        fn no_text_contains_a_password_of_its_urls(
            before in ".{0,20}", user in "[a-z]{0,5}", password in "[A-Z0-9!$&*+,;=%._~@-]{8,20}", after in ".{0,20}",
        ) {
            let text = format!("{before} https://{user}:{password}@host.example/{after}");
            prop_assert!(!without_logins(&text).contains(&password), "{}", without_logins(&text));
            let url = format!("oci://{user}:{password}@host");
            let shown = WithoutLogin(&url).to_string();
            prop_assert!(!shown.contains(&password));
        }

        #[test]
        fn removing_logins_twice_changes_nothing(text in "[a-z:/@. ]{0,60}") {
            let once = without_logins(&text).into_owned();
            prop_assert_eq!(without_logins(&once).into_owned(), once.clone());
        }
    }
}
