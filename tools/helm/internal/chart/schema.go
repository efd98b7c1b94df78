package chart

import (
	"bytes"
	"errors"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"

	"chandler.dev/tools/helm/internal/failure"
)

// schemaURL is the URL that Helm gives to a chart's schema, and the base of relative references.
const schemaURL = "file:///values.schema.json"

// checkSchemas rejects schemas with external references. Helm would read local files and send HTTP requests to resolve
// them, with the permissions and the network access of this process.
func checkSchemas(chart *helmchart.Chart) error {
	if external := externalReference(chart.Schema); external != "" {
		return failure.New(failure.InvalidPackage,
			"the values.schema.json of chart %s refers to %s: external references are not supported; "+
				"copy the referenced schema into values.schema.json", chart.Name(), external)
	}
	for _, dependency := range chart.Dependencies() {
		if err := checkSchemas(dependency); err != nil {
			return err
		}
	}
	return nil
}

// externalReference compiles the schema as Helm does and returns the first URL that would be loaded. It ignores other
// problems of the schema, which Helm reports later.
func externalReference(schema []byte) string {
	if len(schema) == 0 {
		return ""
	}
	loader := &recordingLoader{}
	loader.compile(schema)
	return loader.external
}

// recordingLoader is a schema loader that loads nothing and records the first requested URL.
type recordingLoader struct{ external string }

func (l *recordingLoader) compile(schema []byte) {
	// Helm recovers from panics of this library as well.
	defer func() { _ = recover() }()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(l)
	if compiler.AddResource(schemaURL, document) == nil {
		_, _ = compiler.Compile(schemaURL)
	}
}

// Load implements jsonschema.URLLoader. The compiler calls it for every URL outside the schema.
func (l *recordingLoader) Load(url string) (any, error) {
	// Helm does not resolve URNs either and accepts any value for them.
	if strings.HasPrefix(url, "urn:") {
		return true, nil
	}
	if l.external == "" {
		l.external = url
	}
	return nil, errors.New("external references are not supported")
}
