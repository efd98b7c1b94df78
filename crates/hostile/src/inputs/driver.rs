//! What the Helm driver reads: charts, value templates, and manifests.

use chandler_sandbox::hostile::archive::{chart_yaml, file, pack};
use chandler_tool::BuildInput;

use super::{alias_bomb, input, needing};
use crate::{Attempt, Input, Lab, Needs, refusal};

const fn driver(input: Input) -> Input {
    needing(Needs::Driver, input)
}

pub(super) const INPUTS: &[Input] = &[
    driver(input("chart", "no metadata", "has no Chart.yaml", "Chart.yaml", no_metadata)),
    driver(input(
        "chart",
        "aliases",
        "Chart.yaml in which a few lines stand for billions of values",
        "not a Helm chart",
        aliases,
    )),
    driver(input(
        "chart",
        "remote schema",
        "its schema is at a URL of the cloud's metadata",
        "external references",
        remote_schema,
    )),
    driver(input("chart", "local schema", "its schema is /etc/passwd", "external references", local_schema)),
    driver(input("template", "endless", "loops over loops", "took longer than", template_endless)),
    driver(input("template", "output", "writes 16 MiB", "the output is larger than", template_output)),
    driver(input(
        "template",
        "repeat",
        "repeats a text a billion times",
        "more than 1000000 items",
        template_repeat,
    )),
    driver(input(
        "template",
        "list",
        "makes a list of a billion numbers",
        "more than 1000000 items",
        template_list,
    )),
    driver(input(
        "template",
        "recursion",
        "calls itself",
        "exceeded maximum template depth",
        template_recursion,
    )),
    driver(input("template", "environment", "reads the environment", "not defined", template_environment)),
    driver(input(
        "template",
        "name resolution",
        "resolves a name of the management cluster",
        "not defined",
        template_resolution,
    )),
    driver(input("manifest", "remote base", "a kustomization of a URL", "a remote location", remote_base)),
    driver(input(
        "manifest",
        "parent folder",
        "a kustomization of a folder outside of the Source",
        "outside of the Source",
        parent_base,
    )),
    driver(input("manifest", "chart", "a kustomization that runs helm", "is not supported", chart_inflation)),
    driver(input("manifest", "cycle", "two kustomizations that refer to each other", "cycle", cycle)),
];

fn no_metadata(lab: &Lab) -> Attempt {
    lab.inspect(&pack(&[file("web/values.yaml", b"a: 1\n")])?)
}

fn aliases(lab: &Lab) -> Attempt {
    let text = format!("{}apiVersion: v2\nname: web\nversion: 1.0.0\nkeywords: *a11\n", alias_bomb());
    lab.inspect(&pack(&[file("web/Chart.yaml", text.as_bytes())])?)
}

fn with_schema(lab: &Lab, reference: &str) -> Attempt {
    let schema = format!("{{\"$ref\": \"{reference}\"}}");
    lab.inspect(&pack(&[chart_yaml(), file("web/values.schema.json", schema.as_bytes())])?)
}

fn remote_schema(lab: &Lab) -> Attempt {
    with_schema(lab, "http://169.254.169.254/latest/meta-data")
}

fn local_schema(lab: &Lab) -> Attempt {
    with_schema(lab, "file:///etc/passwd")
}

fn template(lab: &Lab, text: &str) -> Attempt {
    lab.with_templates(async |service| {
        let mut rendered = service.render(text, vec![("web".to_owned(), b"{}".to_vec())]).await?;
        match rendered.pop() {
            Some(Err(failure)) => Ok(Some(failure.message)),
            _ => Ok(None),
        }
    })
}

fn template_endless(lab: &Lab) -> Attempt {
    template(lab, "{{ $all := until 1000000 }}{{ range $all }}{{ range $all }}{{ end }}{{ end }}")
}

fn template_output(lab: &Lab) -> Attempt {
    template(lab, "{{ range until 1000000 }}sixteen bytes ..{{ end }}")
}

fn template_repeat(lab: &Lab) -> Attempt {
    template(lab, "{{ repeat 1000000000 \"x\" | len }}")
}

fn template_list(lab: &Lab) -> Attempt {
    template(lab, "{{ until 1000000000 | len }}")
}

fn template_recursion(lab: &Lab) -> Attempt {
    template(lab, "{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}")
}

fn template_environment(lab: &Lab) -> Attempt {
    template(lab, "{{ env \"HOME\" }}")
}

fn template_resolution(lab: &Lab) -> Attempt {
    template(lab, "{{ getHostByName \"kubernetes.default.svc\" }}")
}

fn build(lab: &Lab, files: &[(&str, &str)]) -> Attempt {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
    let input = BuildInput { files, ..BuildInput::default() };
    lab.with_templates(async |service| refusal(service.build(input).await))
}

fn remote_base(lab: &Lab) -> Attempt {
    build(lab, &[("kustomization.yaml", "resources: [https://charts.example/base]\n")])
}

fn parent_base(lab: &Lab) -> Attempt {
    build(lab, &[("kustomization.yaml", "resources: [../../etc]\n")])
}

fn chart_inflation(lab: &Lab) -> Attempt {
    build(lab, &[("kustomization.yaml", "helmCharts: [{name: web, repo: https://charts.example}]\n")])
}

fn cycle(lab: &Lab) -> Attempt {
    build(
        lab,
        &[
            ("kustomization.yaml", "resources: [a]\n"),
            ("a/kustomization.yaml", "resources: [../b]\n"),
            ("b/kustomization.yaml", "resources: [../a]\n"),
        ],
    )
}
