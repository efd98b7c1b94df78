//! Value templates that double a text, loop, call themselves, or print too much.

use serde_json::{Value, json};

use crate::{
    chart,
    environment::VERSIONS,
    tenants::{
        attack::{Attack, ROUND, Site},
        objects::CLUSTER_LABEL,
    },
};

const CLUSTER: &str = "templates";

const TEMPLATES: [(&str, &str); 4] = [
    (
        "doubling",
        r#"{{ $text := "0123456789abcdef" }}{{ range until 30 }}{{ $text = print $text $text }}{{ end }}"#,
    ),
    (
        "endless",
        "{{ $list := until 1000 }}{{ range $list }}{{ range $list }}{{ range $list }}{{ $x := 1 }}{{ end }}{{ end }}{{ end }}",
    ),
    ("recursion", r#"{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}"#),
    ("output", "{{ range until 1000000 }}sixteen bytes ..{{ end }}"),
];

pub fn attack(site: &Site<'_>) -> Attack {
    let objects = TEMPLATES
        .iter()
        .flat_map(|(name, template)| [chart_proxy(site, name, template), instance(site, name, template)])
        .collect();
    Attack { clusters: vec![site.own_cluster(CLUSTER)], objects, ..Attack::default() }
}

/// Returns a template that differs in each round.
fn renewed(template: &str) -> String {
    format!("# {ROUND}\n{template}\n")
}

fn chart_proxy(site: &Site<'_>, name: &str, template: &str) -> Value {
    let fields = json!({
        "repoURL": site.tenant.environment.repository().url(), "chartName": chart::NAME, "version": VERSIONS[0],
        "valuesTemplate": renewed(template),
    });
    site.chart_proxy(name, (CLUSTER_LABEL, CLUSTER), &fields)
}

fn instance(site: &Site<'_>, name: &str, template: &str) -> Value {
    let fields = json!({"source": site.tenant.source(), "parametersTemplate": renewed(template)});
    site.instance(&format!("template-{name}"), CLUSTER, &fields)
}
