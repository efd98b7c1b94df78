package release

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"chandler.dev/tools/helm/internal/failure"
)

func TestSchemasThatLoseFieldsAreRefused(t *testing.T) {
	// Schemas are those of the field spec.
	cases := map[string]struct{ old, next, want string }{
		"the same":                      {`{type: object, properties: {a: {type: string}}}`, `{type: object, properties: {a: {type: string}}}`, ``},
		"new field":                     {`{type: object}`, `{type: object, properties: {a: {type: string}}}`, ``},
		"description":                   {`{type: string, description: a}`, `{type: string, description: b}`, ``},
		"removed field":                 {`{type: object, properties: {a: {type: string}}}`, `{type: object}`, `in version v1 the field .spec.a is removed`},
		"removed field, deep":           {`{type: object, properties: {a: {type: object, properties: {b: {type: string}}}}}`, `{type: object, properties: {a: {type: object}}}`, `.spec.a.b is removed`},
		"removed field of an item":      {`{type: array, items: {type: object, properties: {a: {type: string}}}}`, `{type: array, items: {type: object}}`, `.spec[].a is removed`},
		"removed field of a map":        {`{type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}`, `{type: object, additionalProperties: {type: object}}`, `.spec[*].a is removed`},
		"removed, unknown fields stay":  {`{type: object, properties: {a: {type: string}}}`, `{type: object, x-kubernetes-preserve-unknown-fields: true}`, ``},
		"removed, any field of a type":  {`{type: object, properties: {a: {type: string}}}`, `{type: object, additionalProperties: {type: string}}`, ``},
		"removed, fields of another":    {`{type: object, properties: {a: {type: string}}}`, `{type: object, additionalProperties: {type: integer}}`, `the type of .spec.a changes from string to integer`},
		"removed, any field":            {`{type: object, properties: {a: {type: string}}}`, `{type: object, additionalProperties: true}`, ``},
		"implicit field of an embedded": {`{type: object, x-kubernetes-embedded-resource: true, properties: {kind: {type: string}}}`, `{type: object, x-kubernetes-embedded-resource: true}`, ``},
		"type":                          {`{type: string}`, `{type: integer}`, `the type of .spec changes from string to integer`},
		"wider number":                  {`{type: integer}`, `{type: number}`, ``},
		"narrower number":               {`{type: number}`, `{type: integer}`, `from number to integer`},
		"wider int-or-string":           {`{type: integer}`, `{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`, ``},
		"narrower int-or-string":        {`{x-kubernetes-int-or-string: true}`, `{type: string}`, `from integer or string to string`},
		"any type":                      {`{x-kubernetes-preserve-unknown-fields: true}`, `{type: object, x-kubernetes-preserve-unknown-fields: true}`, `from any type to object`},
		"to any type":                   {`{type: string}`, `{x-kubernetes-preserve-unknown-fields: true}`, ``},
		"null allowed":                  {`{type: string}`, `{type: string, nullable: true}`, ``},
		"enum value added":              {`{type: string, enum: [a]}`, `{type: string, enum: [a, b]}`, ``},
		"enum removed":                  {`{type: string, enum: [a]}`, `{type: string}`, ``},
		"required with a default":       {`{type: object}`, `{type: object, properties: {a: {type: string, default: x}}, required: [a]}`, ``},
		"no longer required":            {`{type: object, properties: {a: {type: string}}, required: [a]}`, `{type: object, properties: {a: {type: string}}}`, ``},
		"required in a new object":      {`{type: object}`, `{type: object, properties: {a: {type: object, properties: {b: {type: string}}, required: [b]}}}`, ``},
		"longer":                        {`{type: string, maxLength: 5}`, `{type: string, maxLength: 10}`, ``},
		"unlimited":                     {`{type: string, maxLength: 5}`, `{type: string}`, ``},
		"minimal length of nothing":     {`{type: string}`, `{type: string, minLength: 0}`, ``},
		"divisor of the multiple":       {`{type: integer, multipleOf: 4}`, `{type: integer, multipleOf: 2}`, ``},
		"pattern removed":               {`{type: string, pattern: a}`, `{type: string}`, ``},
		"format that is not validated":  {`{type: integer, format: int32}`, `{type: integer, format: int64}`, ``},
		"unknown fields":                {`{type: object, x-kubernetes-preserve-unknown-fields: true}`, `{type: object}`, `.spec no longer keeps fields`},
		"unknown fields of a type":      {`{type: object, x-kubernetes-preserve-unknown-fields: true}`, `{type: object, additionalProperties: {type: string}}`, `.spec no longer keeps fields`},
		"any name":                      {`{type: object, additionalProperties: {type: string}}`, `{type: object, properties: {a: {type: string}}}`, `.spec no longer allows fields of any name`},
		"any name, unknown fields stay": {`{type: object, additionalProperties: {type: string}}`, `{type: object, x-kubernetes-preserve-unknown-fields: true}`, ``},
		"alternative added":             {`{type: object, oneOf: [{required: [a]}]}`, `{type: object, oneOf: [{required: [a]}, {required: [b]}]}`, ``},
		"all of fewer":                  {`{type: object, allOf: [{required: [a]}, {required: [b]}]}`, `{type: object, allOf: [{required: [a]}]}`, ``},
		"the same not":                  {`{type: integer, not: {maximum: 3}}`, `{type: integer, not: {maximum: 3}}`, ``},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, limits := compareCRDs(asRead(t, withSpec(t, c.old)), withSpec(t, c.next))
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) || len(limits) > 0 {
				t.Fatalf("got %q and %q, want %q", got, limits, c.want)
			}
		})
	}
}

// Most upgrades of operators tighten some limit. Stored objects stay as they are.
func TestValuesThatAreNoLongerAllowedAreOnlyReported(t *testing.T) {
	cases := map[string]struct{ old, next, want string }{
		"null":                  {`{type: string, nullable: true}`, `{type: string}`, `.spec can no longer be null`},
		"enum value removed":    {`{type: string, enum: [a, b]}`, `{type: string, enum: [a]}`, `.spec no longer allows the value "b"`},
		"enum of numbers":       {`{type: integer, enum: [1, 2]}`, `{type: integer, enum: [2]}`, `no longer allows the value 1`},
		"enum added":            {`{type: string}`, `{type: string, enum: [a]}`, `.spec allows only some values`},
		"required":              {`{type: object, properties: {a: {type: string}}}`, `{type: object, properties: {a: {type: string}}, required: [a]}`, `the field .spec.a becomes required`},
		"required and new":      {`{type: object}`, `{type: object, properties: {a: {type: string}}, required: [a]}`, `the field .spec.a becomes required`},
		"shorter":               {`{type: string, maxLength: 10}`, `{type: string, maxLength: 5}`, `the maxLength of .spec changes from 10 to 5`},
		"limited":               {`{type: string}`, `{type: string, maxLength: 5}`, `.spec gets the limit maxLength 5`},
		"minimal length":        {`{type: string}`, `{type: string, minLength: 1}`, `minLength 1`},
		"fewer items":           {`{type: array, maxItems: 3, items: {type: string}}`, `{type: array, maxItems: 2, items: {type: string}}`, `maxItems`},
		"more items":            {`{type: array, minItems: 1, items: {type: string}}`, `{type: array, minItems: 2, items: {type: string}}`, `minItems`},
		"fewer fields":          {`{type: object, maxProperties: 3}`, `{type: object, maxProperties: 2}`, `maxProperties`},
		"maximum":               {`{type: integer, maximum: 1000000}`, `{type: integer, maximum: 999999}`, `the maximum of .spec changes from 1000000 to 999999`},
		"exclusive maximum":     {`{type: integer, maximum: 5}`, `{type: integer, maximum: 5, exclusiveMaximum: true}`, `exclusiveMaximum`},
		"minimum":               {`{type: integer, minimum: 0}`, `{type: integer, minimum: 1}`, `minimum`},
		"minimum of zero added": {`{type: integer}`, `{type: integer, minimum: 0}`, `minimum 0`},
		"multiple":              {`{type: integer, multipleOf: 4}`, `{type: integer, multipleOf: 3}`, `multipleOf`},
		"pattern":               {`{type: string, pattern: a}`, `{type: string, pattern: b}`, `.spec gets another pattern`},
		"format":                {`{type: string}`, `{type: string, format: date-time}`, `another format`},
		"any name, narrower":    {`{type: object, additionalProperties: {type: string}}`, `{type: object, additionalProperties: {type: string, maxLength: 1}}`, `.spec[*] gets the limit maxLength 1`},
		"alternative removed":   {`{type: object, oneOf: [{required: [a]}, {required: [b]}]}`, `{type: object, oneOf: [{required: [a]}]}`, `fewer alternatives (oneOf)`},
		"alternatives added":    {`{type: object}`, `{type: object, anyOf: [{required: [a]}]}`, `fewer alternatives (anyOf)`},
		"all of more":           {`{type: object, allOf: [{required: [a]}]}`, `{type: object, allOf: [{required: [a]}, {required: [b]}]}`, `more schemas`},
		"not":                   {`{type: object}`, `{type: object, not: {required: [a]}}`, `excludes other values`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var reported []string
			live, target := asRead(t, withSpec(t, c.old)), withSpec(t, c.next)
			err := checkReplaceable(live, target, false, func(message string) { reported = append(reported, message) })
			if err != nil {
				t.Fatal(err)
			}
			if len(reported) != 1 || !strings.Contains(reported[0], c.want) || !strings.Contains(reported[0], "things.example.invalid") {
				t.Fatalf("got %q, want %q", reported, c.want)
			}
		})
	}
}

// withSpec returns a CRD with one version and the schema of the field spec.
func withSpec(t *testing.T, schema string) *unstructured.Unstructured {
	t.Helper()
	return parseCRD(t, `
metadata: {name: things.example.invalid}
spec:
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: `+schema+`}}}}
status: {storedVersions: [v1]}
`)
}

// asRead returns an object as a client reads it from the API server: whole numbers are integers.
func asRead(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	data, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	read := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &read.Object); err != nil {
		t.Fatal(err)
	}
	return read
}

func parseCRD(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestVersionsThatWouldLoseObjectsAreRefused(t *testing.T) {
	const (
		v1      = `{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string}}}}}`
		v1Empty = `{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}`
		v1Off   = `{name: v1, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}`
		v2      = `{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}`
		v1Old   = `{name: v1, served: true, storage: true}`
		named   = `{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {apiVersion: {type: string}, kind: {type: string}, metadata: {type: object}}}}}`
	)
	cases := map[string]struct {
		live, target string
		want         []string
	}{
		"the same":                    {`spec: {scope: Cluster, versions: [` + v1 + `]}`, `spec: {scope: Cluster, versions: [` + v1 + `]}`, nil},
		"scope":                       {`spec: {scope: Cluster, versions: [` + v1 + `]}`, `spec: {scope: Namespaced, versions: [` + v1 + `]}`, []string{"scope changes from Cluster to Namespaced"}},
		"stored version removed":      {`{spec: {versions: [` + v1 + `]}, status: {storedVersions: [v1]}}`, `spec: {versions: [` + v2 + `]}`, []string{"then remove v1 from status.storedVersions"}},
		"storage version, no status":  {`spec: {versions: [` + v1 + `]}`, `spec: {versions: [` + v2 + `]}`, []string{"stored in version v1, which the new one does not have"}},
		"version without objects":     {`{spec: {versions: [` + v1Off + `, ` + v2 + `]}, status: {storedVersions: [v2]}}`, `spec: {versions: [` + v2 + `]}`, nil},
		"stored but not served":       {`{spec: {versions: [` + v1 + `]}, status: {storedVersions: [v1]}}`, `spec: {versions: [` + v1Off + `, ` + v2 + `]}`, nil},
		"no version is served":        {`{spec: {versions: [` + v1 + `]}, status: {storedVersions: [v1]}}`, `spec: {versions: [` + v1Off + `]}`, []string{"no version is served any more"}},
		"none was served before":      {`{spec: {versions: [` + v1Off + `]}, status: {storedVersions: [v1]}}`, `spec: {versions: [` + v1Off + `]}`, nil},
		"was not served before":       {`{spec: {versions: [` + v1Off + `, ` + v2 + `]}, status: {storedVersions: [v1, v2]}}`, `spec: {versions: [` + v1Off + `, ` + v2 + `]}`, nil},
		"first schema":                {`spec: {versions: [` + v1Old + `]}`, `spec: {versions: [` + v1 + `]}`, []string{"the type of the object changes from any type to object"}},
		"implicit fields":             {`spec: {versions: [` + named + `]}`, `spec: {versions: [` + v1Empty + `]}`, nil},
		"unknown fields":              {`spec: {preserveUnknownFields: true, versions: [` + v1 + `]}`, `spec: {versions: [` + v1 + `]}`, []string{"no longer keeps fields"}},
		"keeps unknown fields":        {`spec: {preserveUnknownFields: true, versions: [` + v1 + `]}`, `spec: {preserveUnknownFields: true, versions: [` + v1Empty + `]}`, nil},
		"everything that is a reason": {`spec: {scope: Cluster, versions: [` + v1 + `]}`, `spec: {scope: Namespaced, versions: [` + v1Empty + `]}`, []string{"scope", "the field .a is removed"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := compareCRDs(parseCRD(t, c.live), parseCRD(t, c.target))
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.Contains(got[i], c.want[i]) {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

func TestUnsafeReplacementsCanBeAllowed(t *testing.T) {
	live, target := withSpec(t, `{type: string}`), withSpec(t, `{type: integer}`)
	err := checkReplaceable(live, target, false, nil)
	if err == nil || failure.Classify(err).Category != failure.Rejected {
		t.Fatalf("got %v", err)
	}
	for _, text := range []string{"things.example.invalid", "version v1", ".spec", replaceUnsafeAnnotation} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in %q", text, err)
		}
	}
	if err := checkReplaceable(live, target, true, nil); err != nil {
		t.Errorf("allowed by the request: %v", err)
	}
	if err := checkReplaceable(nil, target, false, nil); err != nil {
		t.Errorf("a new CRD: %v", err)
	}
	setAnnotation(target, replaceUnsafeAnnotation, "false")
	if err := checkReplaceable(live, target, false, nil); err == nil {
		t.Error("the annotation false allows it")
	}
	setAnnotation(target, replaceUnsafeAnnotation, "true")
	if err := checkReplaceable(live, target, false, nil); err != nil {
		t.Errorf("allowed by the annotation: %v", err)
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	old := `{type: object, properties: {a: {type: string}, b: {type: string}, c: {type: string}, d: {type: string}, e: {type: string}, f: {type: string}, g: {type: string}}}`
	err := checkReplaceable(withSpec(t, old), withSpec(t, `{type: object}`), false, nil)
	if err == nil || !strings.Contains(err.Error(), "and 2 more") || strings.Contains(err.Error(), ".spec.f") {
		t.Fatalf("got %v", err)
	}
}
