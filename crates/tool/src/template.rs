//! The template service: evaluates value templates in a process of its own.

use chandler_core::failure::{Category, Failure};
use tonic::Status;

use crate::{
    client::{MESSAGE_LIMIT, call_failed, local},
    generated::template::{self, template_service_client::TemplateServiceClient},
    supervisor::{Service, Supervisor},
};

/// Why the evaluation of a template failed for one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderFailure {
    pub message: String,
}

/// The template service. Clones share its process.
#[derive(Clone, Debug)]
pub struct TemplateService {
    supervisor: Supervisor,
}

impl TemplateService {
    pub fn new(supervisor: Supervisor) -> Self {
        Self { supervisor }
    }

    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Evaluates a template for many inputs: `(key, data as JSON)`. Returns the results in the order of the inputs.
    pub async fn render(
        &self,
        template: &str,
        inputs: Vec<(String, Vec<u8>)>,
    ) -> Result<Vec<Result<String, RenderFailure>>, Failure> {
        let lease = self.supervisor.lease().await?;
        let asked = inputs.len();
        let request = template::RenderRequest {
            template: template.to_owned(),
            inputs: inputs.into_iter().map(|(key, data)| template::Input { key, data }).collect(),
            timeout: None,
            max_output_bytes: 0,
        };
        let mut client = TemplateServiceClient::new(lease.channel())
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        let answer = client.render(local(request)).await.map_err(failed)?.into_inner();
        if answer.outputs.len() != asked {
            return Err(incomplete());
        }
        answer.outputs.into_iter().map(rendered).collect()
    }
}

fn rendered(output: template::Output) -> Result<Result<String, RenderFailure>, Failure> {
    match output.outcome {
        Some(template::output::Outcome::Text(text)) => Ok(Ok(text)),
        Some(template::output::Outcome::Failure(failure)) => {
            Ok(Err(RenderFailure { message: failure.message }))
        }
        None => Err(incomplete()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err calls")]
fn failed(status: Status) -> Failure {
    call_failed(Service::Templates, &status)
}

fn incomplete() -> Failure {
    Failure::new(Category::Internal, "the template service breaks its contract: an input has no result")
}
