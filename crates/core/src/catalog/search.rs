//! Full-text search for packages.

/// The terms of a search, case-insensitive. A package matches if it contains all of them.
#[derive(Clone, Debug)]
pub struct SearchQuery(Vec<String>);

/// How well a package matches. Greater is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Described,
    Keyword,
    InName,
    Name,
}

impl SearchQuery {
    pub fn new(text: &str) -> Self {
        Self(text.split_whitespace().map(str::to_lowercase).collect())
    }

    /// Returns the rank of the term that matches worst, or `None` if a term is missing.
    pub fn rank(&self, name: &str, description: &str, keywords: &[String]) -> Option<Rank> {
        let name = name.to_lowercase();
        let rank = |term: &String| {
            if name == *term {
                return Some(Rank::Name);
            }
            if name.contains(term) {
                return Some(Rank::InName);
            }
            if keywords.iter().any(|keyword| keyword.to_lowercase().contains(term)) {
                return Some(Rank::Keyword);
            }
            description.to_lowercase().contains(term).then_some(Rank::Described)
        };
        self.0.iter().map(rank).try_fold(Rank::Name, |worst, rank| Some(worst.min(rank?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_must_match_and_names_rank_highest() {
        let keywords = ["TLS".to_owned(), "certificates".to_owned()];
        let rank =
            |text: &str| SearchQuery::new(text).rank("cert-manager", "Issues and renews X.509", &keywords);
        let rows = [
            ("Cert-Manager", Some(Rank::Name)),
            ("manager", Some(Rank::InName)),
            ("tls", Some(Rank::Keyword)),
            ("RENEWS", Some(Rank::Described)),
            ("cert tls", Some(Rank::Keyword)),
            ("cert database", None),
            ("", Some(Rank::Name)),
        ];
        for (text, expected) in rows {
            assert_eq!(rank(text), expected, "{text}");
        }
    }
}
