package template

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
)

const (
	fuzzOutput  = 4096
	fuzzTimeout = time.Second
	// fuzzSlack is what a single function call may take after the timeout: a running call cannot be interrupted.
	fuzzSlack = 5 * time.Second
)

// checkRender renders a template for one input and checks that it ends in time with one bounded output or a failure.
func checkRender(t *testing.T, text string, data []byte) {
	t.Helper()
	started := time.Now()
	response := Render(context.Background(), &templatev1.RenderRequest{
		Template:       text,
		Inputs:         []*templatev1.Input{{Key: "a", Data: data}},
		Timeout:        durationpb.New(fuzzTimeout),
		MaxOutputBytes: fuzzOutput,
	})
	if took := time.Since(started); took > fuzzTimeout+fuzzSlack {
		t.Fatalf("%q took %s", text, took)
	}
	if len(response.GetOutputs()) != 1 {
		t.Fatalf("%q has %d outputs", text, len(response.GetOutputs()))
	}
	output := response.GetOutputs()[0]
	if output.GetFailure() == nil && len(output.GetText()) > fuzzOutput {
		t.Fatalf("%q has an output of %d bytes", text, len(output.GetText()))
	}
}

func FuzzRender(f *testing.F) {
	f.Add("{{ .Cluster.metadata.name }}", []byte(`{"Cluster": {"metadata": {"name": "blue"}}}`))
	f.Add("{{ range $k, $v := . }}{{ $k }}={{ $v | toJson }}{{ end }}", []byte(`{"a": [1, 2.5, null, {"b": "c"}]}`))
	f.Add("{{ toYaml . | nindent 2 }}{{ fromYaml .a | len }}", []byte(`{"a": "b: [1, 2"}`))
	f.Add(`{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}`, []byte(`{}`))
	f.Add("{{ regexReplaceAll \"(a+)+$\" .a \"b\" }}", []byte(`{"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}`))
	f.Add("{{", []byte(`[]`))
	f.Fuzz(checkRender)
}

// Random sequences of template fragments end in time, for data of every JSON type. The seed is fixed, so CI always runs the
// same sequences.
func TestRandomTemplates(t *testing.T) {
	fragments := []string{
		"{{ . }}", "{{ .a }}", "{{ .a.b }}", "{{ index . \"a\" }}", "{{ if .a }}", "{{ else }}", "{{ end }}",
		"{{ range .a }}", "{{ range $i, $x := .a }}{{ $x }}{{ end }}", "{{ with .a }}", "{{ $v := .a }}", "{{ $v }}",
		"{{ .a | quote }}", "{{ toYaml .a | indent 2 }}", "{{ fromYaml (.a | toString) }}", "{{ .a | default \"x\" }}",
		"{{ add .a 1 }}", "{{ until 10 }}", "{{ repeat 3 \"ab\" }}", "{{ required \"m\" .a }}", "{{ fail \"m\" }}",
		"{{ tpl \"x\" . }}", "{{ .a | b64enc | b64dec }}", "{{ trunc -5 (.a | toString) }}", "text\n", "{{-", "}}", "{{/*",
		"{{ splitList \",\" (.a | toString) | first }}", "{{ merge (dict) . | keys }}", "{{ printf \"%d\" .a }}",
	}
	data := []string{
		`{}`, `{"a": 1}`, `{"a": -1.5e300}`, `{"a": "x,y"}`, `{"a": null}`, `{"a": [1, "b", {}]}`,
		`{"a": {"b": {"c": "d"}}}`, `[]`, `"a"`, `{`, ``,
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var text strings.Builder
		for range 1 + random.IntN(6) {
			text.WriteString(fragments[random.IntN(len(fragments))])
		}
		checkRender(t, text.String(), []byte(data[random.IntN(len(data))]))
	}
}
