// Package template renders values templates: Go text/template with Sprig's text functions.
package template

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"text/template"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
	"chandler.dev/tools/helm/internal/redact"
)

const (
	defaultTimeout   = 5 * time.Second
	defaultMaxOutput = 1 << 20
	// name is the name of the template in error messages: "template: values:3:5: …".
	name = "values"
)

// Render parses the template once and executes it for every input. A failure of one input does not affect the others.
func Render(ctx context.Context, request *templatev1.RenderRequest) *templatev1.RenderResponse {
	limits := limits{timeout: defaultTimeout, output: defaultMaxOutput}
	if request.GetTimeout().AsDuration() > 0 {
		limits.timeout = request.GetTimeout().AsDuration()
	}
	if request.GetMaxOutputBytes() > 0 {
		limits.output = int(request.GetMaxOutputBytes())
	}

	response := &templatev1.RenderResponse{}
	budget := &budget{}
	parsed, messages, err := parseTemplate(request.GetTemplate(), budget)
	literals := redact.TemplateLiterals(request.GetTemplate())
	for _, input := range request.GetInputs() {
		output := &templatev1.Output{Key: input.GetKey()}
		if err != nil {
			output.Outcome = failed(redact.Message(err.Error(), literals), err, true)
		} else if text, err := execute(ctx, parsed, input.GetData(), limits, budget); err != nil {
			message := executionMessage(err, mayHaveSecrets(input.GetData()), messages)
			output.Outcome = failed(redact.Message(message, literals), err, false)
		} else {
			output.Outcome = &templatev1.Output_Text{Text: text}
		}
		response.Outputs = append(response.Outputs, output)
	}
	return response
}

// parseTemplate also returns the error messages that the template itself contains.
func parseTemplate(text string, budget *budget) (*template.Template, messages, error) {
	hidden := template.FuncMap{
		tick:    func() (string, error) { return "", budget.run.check() },
		printed: budget.printable,
	}
	parsed, err := template.New(name).Funcs(budget.wrap(functions())).Funcs(hidden).Parse(text)
	if err != nil {
		return nil, nil, err
	}
	found := messages{}
	for _, associated := range parsed.Templates() {
		if associated.Tree != nil {
			found.addFrom(associated.Tree.Root)
			insertChecks(associated.Tree)
		}
	}
	return parsed, found, nil
}

func execute(
	ctx context.Context, parsed *template.Template, data []byte, limits limits, budget *budget,
) (string, error) {
	var input map[string]any
	// Integers become int64 and other numbers float64, as in unstructured Kubernetes objects.
	if err := utiljson.Unmarshal(data, &input); err != nil {
		return "", harmless("the template's data is not a JSON object")
	}
	run := &execution{ctx: ctx, deadline: time.Now().Add(limits.timeout), limits: limits}
	budget.run, budget.produced = run, 0
	if err := parsed.Execute(run, input); err != nil {
		return "", err
	}
	return run.out.String(), nil
}

func failed(message string, err error, parse bool) *templatev1.Output_Failure {
	return &templatev1.Output_Failure{Failure: &templatev1.TemplateFailure{
		Message: message,
		Line:    line(err),
		Parse:   parse,
	}}
}

// line returns the line number in a message of text/template: "template: values:LINE:COLUMN: …".
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
