//! Value templates, which a separate process renders.

use std::time::{Duration, Instant};

use chandler_tool::generated::template::{Input, RenderRequest, TemplateFailure, output};

use crate::{Case, CaseError, context::Context, request::duration, tool::Tool};

pub const CASES: &[Case] = &[
    case!(
        "templates/inputs",
        [Templates],
        inputs,
        "A template is rendered once per input, and a failure of one input has its line and affects no other."
    ),
    case!(
        "templates/language",
        [Templates],
        language,
        "Templates are Go's text/template with Sprig, and integers stay integers."
    ),
    case!(
        "templates/parse",
        [Templates],
        parse,
        "A template that does not parse fails for every input and reports the line."
    ),
    case!(
        "templates/machine",
        [Templates],
        machine,
        "A template cannot read the environment or the network."
    ),
    case!("templates/limits", [Templates], limits, "The time and the output of a template are limited."),
];

type Rendered = Vec<Result<String, TemplateFailure>>;

/// Returns the process that serves templates.
fn service(context: &Context) -> Result<&Tool, CaseError> {
    context.templates.as_ref().ok_or_else(|| CaseError::Host("there is no template service".into()))
}

async fn render(context: &Context, request: RenderRequest) -> Result<Rendered, CaseError> {
    let keys: Vec<_> = request.inputs.iter().map(|input| input.key.clone()).collect();
    let answer = service(context)?.render(request).await?;
    let answered: Vec<_> = answer.outputs.iter().map(|output| output.key.clone()).collect();
    ensure!(keys == answered, "the inputs are {keys:?}, the outputs {answered:?}");
    let outputs = answer.outputs.into_iter().map(|output| match output.outcome {
        Some(output::Outcome::Text(text)) => Ok(Ok(text)),
        Some(output::Outcome::Failure(failure)) => Ok(Err(failure)),
        None => Err(CaseError::Violation(format!("no outcome for {}", output.key))),
    });
    outputs.collect()
}

fn request(template: &str, data: &[&str]) -> RenderRequest {
    let input =
        |(index, data): (usize, &&str)| Input { key: format!("c{index}"), data: data.as_bytes().to_vec() };
    RenderRequest {
        template: template.to_owned(),
        inputs: data.iter().enumerate().map(input).collect(),
        ..RenderRequest::default()
    }
}

/// Returns the only output, which must be a failure.
async fn failure(context: &Context, request: RenderRequest) -> Result<TemplateFailure, CaseError> {
    let template = request.template.clone();
    match render(context, request).await?.pop() {
        Some(Err(failure)) => Ok(failure),
        other => Err(CaseError::Violation(format!("{template:?} gave {other:?}"))),
    }
}

async fn inputs(context: &Context) -> Result<(), CaseError> {
    let template = "name: {{ .Cluster.name }}\n\nsize: {{ index .Cluster.sizes 1 }}\n";
    let data = [
        r#"{"Cluster": {"name": "a", "sizes": [1, 2]}}"#,
        r#"{"Cluster": {"name": "b", "sizes": []}}"#,
        r#"{"Cluster": {"name": "c", "sizes": [3, 4]}}"#,
        "not JSON",
    ];
    let outputs = render(context, request(template, &data)).await?;
    ensure!(outputs[0].as_deref() == Ok("name: a\n\nsize: 2\n"), "the first is {:?}", outputs[0]);
    ensure!(outputs[2].as_deref() == Ok("name: c\n\nsize: 4\n"), "the third is {:?}", outputs[2]);
    ensure!(
        outputs[1].as_ref().is_err_and(|failure| failure.line == 3 && !failure.parse),
        "{:?}",
        outputs[1]
    );
    ensure!(outputs[3].is_err(), "data that is not JSON gave {:?}", outputs[3]);
    Ok(())
}

async fn language(context: &Context) -> Result<(), CaseError> {
    let data = r#"{"n": 12345678901234567, "f": 1.5, "name": "blue", "m": {"b": 1, "a": 2}}"#;
    let pairs = [
        ("{{ .n }}", "12345678901234567"),
        ("{{ .f }}", "1.5"),
        ("{{ .name | upper | quote }}", "\"BLUE\""),
        ("{{ .missing | default \"none\" }}", "none"),
        ("{{ range $k, $v := .m }}{{ $k }}={{ $v }};{{ end }}", "a=2;b=1;"),
        ("{{ toJson .m }}", r#"{"a":2,"b":1}"#),
        ("{{ define \"x\" }}<{{ . }}>{{ end }}{{ template \"x\" .name }}", "<blue>"),
        ("{{ (printf \"10.%d.0.0/16\" (add 1 2)) | b64enc }}", "MTAuMy4wLjAvMTY="),
    ];
    for (template, expected) in pairs {
        let outputs = render(context, request(template, &[data])).await?;
        ensure!(
            outputs[0].as_deref() == Ok(expected),
            "{template:?} gave {:?}, expected {expected:?}",
            outputs[0]
        );
    }
    Ok(())
}

async fn parse(context: &Context) -> Result<(), CaseError> {
    let outputs = render(context, request("ok\n{{ if }}\n", &["{}", "{}"])).await?;
    for output in outputs {
        ensure!(output.as_ref().is_err_and(|failure| failure.parse && failure.line == 2), "got {output:?}");
    }
    Ok(())
}

async fn machine(context: &Context) -> Result<(), CaseError> {
    for template in ["{{ env \"PATH\" }}", "{{ expandenv \"$PATH\" }}", "{{ getHostByName \"localhost\" }}"] {
        let failure = failure(context, request(template, &["{}"])).await?;
        ensure!(failure.parse, "{template:?} parses: {}", failure.message);
    }
    Ok(())
}

async fn limits(context: &Context) -> Result<(), CaseError> {
    let large = RenderRequest {
        max_output_bytes: 100,
        ..request("{{ range until 1000 }}xxxxxxxxxx{{ end }}", &["{}"])
    };
    failure(context, large).await?;
    failure(context, request("{{ range until 100000 }}xxxxxxxxxxxxxxxxxxxxxxxx{{ end }}", &["{}"])).await?;
    let endless = [
        "{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}",
        "{{ define \"x\" }}{{ template \"x\" . }}{{ end }}{{ template \"x\" . }}",
    ];
    for template in endless {
        let slow =
            RenderRequest { timeout: duration(Duration::from_millis(500)), ..request(template, &["{}"]) };
        let started = Instant::now();
        failure(context, slow).await?;
        ensure!(started.elapsed() < Duration::from_secs(10), "{template:?} ran for {:?}", started.elapsed());
    }
    // The process still serves.
    let outputs = render(context, request("{{ .a }}", &[r#"{"a": 1}"#])).await?;
    ensure!(outputs[0].as_deref() == Ok("1"), "afterwards the output is {:?}", outputs[0]);
    Ok(())
}
