package template

import (
	"errors"
	"strings"
	"text/template"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// yamlFunctions returns the functions that Helm adds to Sprig, as far as they need no chart. Unlike Helm's, they fail on invalid
// arguments. Their errors do not quote arguments, which may be secret.
func yamlFunctions() template.FuncMap {
	return template.FuncMap{
		"toYaml": func(value any) (string, error) {
			text, err := yaml.Marshal(value)
			if err != nil {
				return "", harmless("the value cannot be written as YAML")
			}
			return strings.TrimSuffix(string(text), "\n"), nil
		},
		"fromYaml": func(text string) (any, error) {
			encoded, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				return nil, harmless("the text is not valid YAML")
			}
			var value any
			// Numbers have the same types as in the data of the template.
			if err := utiljson.Unmarshal(encoded, &value); err != nil {
				return nil, harmless("the text is not valid YAML")
			}
			return value, nil
		},
		"required": func(message string, value any) (any, error) {
			if value == nil || value == "" {
				return nil, errors.New(message)
			}
			return value, nil
		},
	}
}
