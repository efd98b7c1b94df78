//! Writes the tables of Chandler's RBAC rules, and what its admission policies allow, from `deploy/rbac.yaml`. The comment above a
//! rule or a policy is its reason.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

const HEAD: &str = "# RBAC permissions\n\n\
    Generated from `deploy/rbac.yaml` by `cargo xtask generate`. [Security](../security.md) describes how to restrict \
    them.\n";

/// A rule and its reason.
#[derive(Default)]
struct Rule {
    reason: String,
    groups: String,
    resources: String,
    names: String,
    verbs: String,
}

/// Returns the rules of all roles in the file as Markdown.
pub fn markdown(yaml: &str) -> Result<String> {
    let mut text = HEAD.to_owned();
    for document in yaml.split("\n---\n") {
        let kind = field(document, "kind: ");
        if kind == "ValidatingAdmissionPolicy" {
            text.push_str(&policy(document)?);
        }
        if kind != "ClusterRole" && kind != "Role" {
            continue;
        }
        let name = field(document, "  name: ");
        let (_, rules) = document.split_once("\nrules:\n").context("a role has rules")?;
        write!(text, "\n## {kind} `{name}`\n\n| reason | resources | verbs |\n|---|---|---|\n")?;
        for rule in parse_rules(rules) {
            ensure!(!rule.reason.is_empty(), "a rule of {name} has no comment: {}", rule.resources);
            writeln!(text, "{}", row(&rule))?;
        }
    }
    Ok(text)
}

/// Returns the reason of a policy, and what it allows.
fn policy(document: &str) -> Result<String> {
    let name = field(document, "  name: ");
    let reason: Vec<_> = document.lines().map_while(|line| line.strip_prefix("# ")).collect();
    ensure!(!reason.is_empty(), "policy {name} has no comment");
    let mut text = format!("\n## ValidatingAdmissionPolicy `{name}`\n\n{}\n\n", reason.join(" "));
    for allowed in document.lines().filter_map(|line| line.trim().strip_prefix("message: ")) {
        writeln!(text, "- {}", allowed.trim_matches('"'))?;
    }
    Ok(text)
}

fn field<'a>(document: &'a str, name: &str) -> &'a str {
    document.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
}

fn parse_rules(text: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut rule = Rule::default();
    for line in text.lines().map(|line| line.trim().trim_start_matches("- ")) {
        if let Some(reason) = line.strip_prefix("# ") {
            let separator = if rule.reason.is_empty() { "" } else { " " };
            rule.reason.push_str(separator);
            rule.reason.push_str(reason);
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
    let Rule { reason, groups, resources, names, verbs } = rule;
    let groups = if groups.is_empty() { "core" } else { groups };
    let names = if names.is_empty() { String::new() } else { format!(" named {names}") };
    format!("| {reason} | {} ({groups}){names} | {verbs} |", resources.replace('*', "all"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "# Of the role.\nkind: ClusterRole\nmetadata:\n  name: reader\nrules:\n  # To read,\n  # one by one.\n  \
        - apiGroups: [\"\"]\n    resources: [secrets, configmaps]\n    resourceNames: [a]\n    verbs: [get]\n";

    #[test]
    fn a_policy_has_a_reason_and_says_what_it_allows() -> Result<()> {
        let document = "# Because of\n# this.\nkind: ValidatingAdmissionPolicy\nmetadata:\n  name: guard\nspec:\n  \
            validations:\n    - expression: 'true'\n      message: \"All.\"\n";
        let text = markdown(document)?;
        assert!(
            text.ends_with("## ValidatingAdmissionPolicy `guard`\n\nBecause of this.\n\n- All.\n"),
            "{text}"
        );
        assert!(markdown(&document.replace("# ", "")).is_err());
        Ok(())
    }

    #[test]
    fn every_rule_has_a_reason() -> Result<()> {
        let text = markdown(ROLE)?;
        assert!(text.contains("## ClusterRole `reader`"), "{text}");
        assert!(
            text.contains("| To read, one by one. | secrets, configmaps (core) named a | get |"),
            "{text}"
        );
        let without_reason = ROLE.replace("  # To read,\n  # one by one.\n", "");
        assert!(markdown(&without_reason).is_err());
        Ok(())
    }
}
