//! Finds packages by words.

/// The words that someone looks for, in any letter case. All of them have to be found.
#[derive(Clone, Debug)]
pub struct Words(Vec<String>);

/// How well a package fits: the greater the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Described,
    Keyword,
    InName,
    Name,
}

impl Words {
    pub fn new(text: &str) -> Self {
        Self(text.split_whitespace().map(str::to_lowercase).collect())
    }

    /// How well a package fits, or None if a word is missing. The word that fits worst decides.
    pub fn rank(&self, name: &str, description: &str, keywords: &[String]) -> Option<Rank> {
        let name = name.to_lowercase();
        let rank = |word: &String| {
            if name == *word {
                return Some(Rank::Name);
            }
            if name.contains(word) {
                return Some(Rank::InName);
            }
            if keywords.iter().any(|keyword| keyword.to_lowercase().contains(word)) {
                return Some(Rank::Keyword);
            }
            description.to_lowercase().contains(word).then_some(Rank::Described)
        };
        self.0.iter().map(rank).try_fold(Rank::Name, |worst, rank| Some(worst.min(rank?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_to_be_found_and_names_count_most() {
        let keywords = ["TLS".to_owned(), "certificates".to_owned()];
        let rank = |text: &str| Words::new(text).rank("cert-manager", "Issues and renews X.509", &keywords);
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
