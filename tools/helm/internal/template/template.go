// Package template evaluates value templates: Go text/template with Sprig's text functions, for many inputs at once.
package template

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
	"chandler.dev/tools/helm/internal/withhold"
)

const (
	defaultTimeout   = 5 * time.Second
	defaultMaxOutput = 1 << 20
	// name appears in messages: "template: values:3:5: …".
	name = "values"
)

// Render parses the template once and evaluates it once per input. A failing input fails alone.
func Render(ctx context.Context, request *templatev1.RenderRequest) *templatev1.RenderResponse {
	limits := limits{timeout: defaultTimeout, output: defaultMaxOutput}
	if request.GetTimeout().AsDuration() > 0 {
		limits.timeout = request.GetTimeout().AsDuration()
	}
	if request.GetMaxOutputBytes() > 0 {
		limits.output = int(request.GetMaxOutputBytes())
	}

	response := &templatev1.RenderResponse{}
	parsed, err := parseTemplate(request.GetTemplate())
	for _, input := range request.GetInputs() {
		output := &templatev1.Output{Key: input.GetKey()}
		if err != nil {
			output.Outcome = failed(request.GetTemplate(), err, true)
		} else if text, err := evaluate(ctx, parsed, input.GetData(), limits); err != nil {
			output.Outcome = failed(request.GetTemplate(), err, false)
		} else {
			output.Outcome = &templatev1.Output_Text{Text: text}
		}
		response.Outputs = append(response.Outputs, output)
	}
	return response
}

func parseTemplate(text string) (*template.Template, error) {
	parsed, err := template.New(name).Funcs(functions()).Parse(text)
	if err != nil {
		return nil, err
	}
	for _, one := range parsed.Templates() {
		if one.Tree != nil {
			insertTicks(one.Tree)
		}
	}
	return parsed, nil
}

func evaluate(ctx context.Context, parsed *template.Template, data []byte, limits limits) (string, error) {
	var input map[string]any
	// Integers become int64 and other numbers float64, as in the objects of a Kubernetes client.
	if err := utiljson.Unmarshal(data, &input); err != nil {
		return "", fmt.Errorf("the template's data is not a JSON object: %w", err)
	}
	own, err := parsed.Clone()
	if err != nil {
		return "", err
	}
	run := &run{ctx: ctx, deadline: time.Now().Add(limits.timeout), limits: limits}
	own.Funcs(template.FuncMap{tick: run.tick})
	if err := own.Execute(run, input); err != nil {
		return "", err
	}
	return run.out.String(), nil
}

func failed(text string, err error, parse bool) *templatev1.Output_Failure {
	return &templatev1.Output_Failure{Failure: &templatev1.TemplateFailure{
		Message: withhold.From(err.Error(), withhold.Literals(text)),
		Line:    line(err),
		Parse:   parse,
	}}
}

// line reads the position that text/template puts at the head of its messages: "template: values:LINE:COLUMN: …".
func line(err error) uint32 {
	if exec, ok := errors.AsType[template.ExecError](err); ok {
		err = exec
	}
	_, rest, found := strings.Cut(err.Error(), "template: "+name+":")
	if !found {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ":")
	number, parseErr := strconv.ParseUint(digits, 10, 32)
	if parseErr != nil {
		return 0
	}
	return uint32(number)
}
