//! The table of Chandler's rights, from `deploy/rbac.yaml`: each rule with the comment above it, which says why.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

const HEAD: &str = "# Rights\n\n\
    Generated from `deploy/rbac.yaml` by `cargo xtask generate`. What they are for and how to narrow them: \
    [Security](../security.md).\n";

/// A rule and why it is there.
#[derive(Default)]
struct Rule {
    why: String,
    groups: String,
    resources: String,
    names: String,
    verbs: String,
}

/// Markdown of all roles in the file.
pub fn markdown(yaml: &str) -> Result<String> {
    let mut text = HEAD.to_owned();
    for document in yaml.split("\n---\n") {
        let kind = field(document, "kind: ");
        if kind != "ClusterRole" && kind != "Role" {
            continue;
        }
        let name = field(document, "  name: ");
        let (_, rules) = document.split_once("\nrules:\n").context("a role has rules")?;
        write!(text, "\n## {kind} `{name}`\n\n| why | resources | verbs |\n|---|---|---|\n")?;
        for rule in rules_of(rules) {
            ensure!(!rule.why.is_empty(), "a rule of {name} does not say why: {}", rule.resources);
            writeln!(text, "{}", row(&rule))?;
        }
    }
    Ok(text)
}

fn field<'a>(document: &'a str, name: &str) -> &'a str {
    document.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
}

fn rules_of(text: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut rule = Rule::default();
    for line in text.lines().map(|line| line.trim().trim_start_matches("- ")) {
        if let Some(why) = line.strip_prefix("# ") {
            let gap = if rule.why.is_empty() { "" } else { " " };
            rule.why.push_str(gap);
            rule.why.push_str(why);
        } else if let Some((name, list)) = line.split_once(": ") {
            let list = list.trim_matches(['[', ']']).replace('"', "");
            match name {
                "apiGroups" => rule.groups = list,
                "resources" => rule.resources = list,
                "resourceNames" => rule.names = list,
                // The last field of each rule.
                _ => {
                    rule.verbs = list;
                    rules.push(std::mem::take(&mut rule));
                }
            }
        }
    }
    rules
}

fn row(rule: &Rule) -> String {
    let Rule { why, groups, resources, names, verbs } = rule;
    let groups = if groups.is_empty() { "core" } else { groups };
    let names = if names.is_empty() { String::new() } else { format!(" named {names}") };
    format!("| {why} | {} ({groups}){names} | {verbs} |", resources.replace('*', "all"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "# Of the role.\nkind: ClusterRole\nmetadata:\n  name: reader\nrules:\n  # To read,\n  # one by one.\n  \
        - apiGroups: [\"\"]\n    resources: [secrets, configmaps]\n    resourceNames: [a]\n    verbs: [get]\n";

    #[test]
    fn every_rule_says_why() -> Result<()> {
        let text = markdown(ROLE)?;
        assert!(text.contains("## ClusterRole `reader`"), "{text}");
        assert!(
            text.contains("| To read, one by one. | secrets, configmaps (core) named a | get |"),
            "{text}"
        );
        let silent = ROLE.replace("  # To read,\n  # one by one.\n", "");
        assert!(markdown(&silent).is_err());
        Ok(())
    }
}
