//! What the tool under test declares.

use chandler_core::package_format::PackageFormat;
use chandler_tool::generated::tool::DescribeResponse;

use super::{Ability, CaseError, Environment, packer::Packer, records::Records};

/// What the tool declares, and what the suite derives from it.
#[derive(Debug)]
pub struct Profile {
    capabilities: Vec<String>,
    manifests: bool,
    templates: bool,
    pub packer: Packer,
    /// `Err` says what is wrong with the declaration.
    records: Result<Records, String>,
}

impl Profile {
    pub fn of(answer: &DescribeResponse, environment: &Environment) -> Result<Self, CaseError> {
        Ok(Self {
            capabilities: answer.capabilities.clone(),
            manifests: answer.formats.iter().any(|format| format == PackageFormat::MANIFESTS),
            templates: environment.templates.is_some(),
            packer: Packer::of(environment, &answer.formats)?,
            records: Records::read(answer.records.as_ref()),
        })
    }

    pub fn has(&self, ability: Ability) -> bool {
        match ability {
            Ability::Manifests => self.manifests,
            Ability::Templates => self.templates,
            declared => self.capabilities.iter().any(|name| name == declared.name()),
        }
    }

    /// Returns the declared records.
    pub fn records(&self) -> Result<&Records, CaseError> {
        self.records.as_ref().map_err(|problem| CaseError::Violation(problem.clone()))
    }
}
