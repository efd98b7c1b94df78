package chart

import (
	"bytes"
	"errors"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"

	"chandler.dev/tools/helm/internal/failure"
)

// schemaURL is what Helm calls a chart's schema; references are resolved against it.
const schemaURL = "file:///values.schema.json"

// checkSchemas refuses schemas that refer to anything outside themselves: Helm would read local files and ask any
// server for them, with this process's rights and from its place in the network.
func checkSchemas(chart *helmchart.Chart) error {
	if outside := outsideReference(chart.Schema); outside != "" {
		return failure.New(failure.InvalidPackage,
			"the values.schema.json of chart %s refers to %s: references outside the schema are not followed; "+
				"copy what it refers to into the schema", chart.Name(), outside)
	}
	for _, dependency := range chart.Dependencies() {
		if err := checkSchemas(dependency); err != nil {
			return err
		}
	}
	return nil
}

// outsideReference compiles the schema as Helm does, and sees what would be loaded. What else is wrong with the
// schema, Helm says in its own words.
func outsideReference(schema []byte) string {
	if len(schema) == 0 {
		return ""
	}
	asked := &references{}
	asked.compile(schema)
	return asked.outside
}

// references loads nothing, and keeps the first thing that was to be loaded.
type references struct{ outside string }

func (r *references) compile(schema []byte) {
	// Helm expects panics of this library too.
	defer func() { _ = recover() }()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(r)
	if compiler.AddResource(schemaURL, document) == nil {
		_, _ = compiler.Compile(schemaURL)
	}
}

// Load is asked for everything that is not part of the schema.
func (r *references) Load(url string) (any, error) {
	// Helm looks for these nowhere either, and takes everything for valid.
	if strings.HasPrefix(url, "urn:") {
		return true, nil
	}
	if r.outside == "" {
		r.outside = url
	}
	return nil, errors.New("it is outside the schema")
}
